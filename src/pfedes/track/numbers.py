"""What trackers take from a row: its numbers, by the names that they have in `rounds.jsonl`."""

import math
from collections.abc import Mapping
from typing import Any


def numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row or a summary. What participants withhold is left out."""
    return {
        key: value
        for key, value in row.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and key != "round"
        and math.isfinite(value)
    }
