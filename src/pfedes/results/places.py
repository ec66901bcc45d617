"""Finds the run directories in the directories that a user names."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path


def run_directories(directories: Sequence[Path]) -> Iterator[Path]:
    """The run directories that are meant, each once; what holds no run is given as it is."""
    seen: set[Path] = set()
    for directory in directories:
        for place in runs_below(directory) or [directory]:  # opening it fails if it is not a run
            if (resolved := place.resolve()) not in seen:
                seen.add(resolved)
                yield place


def runs_below(directory: Path) -> list[Path]:
    """Itself, or every run below it: those of comparisons and those that lie beside them."""
    if (directory / "state").is_dir():
        return [directory]
    found = []
    for place, below, _ in os.walk(directory):
        if (Path(place) / "state" / "manifests").is_dir():
            found.append(Path(place))
            below.clear()  # no run lies inside a run
    return sorted(found)
