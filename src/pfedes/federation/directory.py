"""The directory that a new run gets."""

import itertools
from pathlib import Path

from pfedes.errors import StoreError
from pfedes.files import writing


def refuse_if_taken(directory: Path) -> None:
    """Refuses a directory that is not empty."""
    with writing(directory):
        taken = (directory / "state").is_dir()
        used = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    if taken:
        raise StoreError(
            f"{directory} already holds a run: continue it with 'pfedes resume {directory}', "
            "or choose another directory"
        )
    if used:
        raise StoreError(f"{directory} exists and is not an empty directory: choose another")


def free_directory(name: str) -> Path:
    """`runs/NAME`, or the first of `-2`, `-3`, ... that is not taken."""
    name = name.replace(":", "-")
    for number in itertools.count(1):
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            return path
    raise AssertionError("unreachable")
