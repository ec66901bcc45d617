"""Names of clients and runs. They become names of directories, so their form is restricted."""

import re
from typing import Annotated

from pydantic import StringConstraints

from pfedes.errors import StoreError

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"

Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]


def check_name(name: str) -> str:
    """A name of a client or run, if it can be the name of a directory and of nothing else."""
    if re.fullmatch(NAME, name) is None:
        raise StoreError(
            f"{name!r:.120} cannot be a name: up to 100 letters, digits, '.', '-' and '_', "
            "beginning with a letter or digit"
        )
    return name
