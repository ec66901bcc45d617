"""Rows as a data frame, where there is a library for that."""

from collections.abc import Mapping, Sequence
from typing import Any


def frame_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A pandas DataFrame; where pandas is not installed, the rows as a list of dictionaries."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        return [dict(row) for row in rows]
    return pd.DataFrame(list(rows))
