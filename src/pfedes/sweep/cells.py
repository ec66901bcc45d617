"""One run of a sweep, and its outcome."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pfedes.config import Config
from pfedes.errors import ConfigError, StoreError
from pfedes.results.run import Run, open_run
from pfedes.store.trust import remember


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: what to run, and where. Its directory is an ordinary run directory."""

    name: str
    config: Config
    directory: Path
    point: Mapping[str, Any] = field(default_factory=dict)  # where in a grid, if in one

    @property
    def rounds(self) -> int:
        return self.config.train.rounds

    def rounds_done(self) -> int:
        manifests = self.directory / "state" / "manifests"
        return max((int(path.stem) for path in manifests.glob("[0-9]*.json")), default=0)

    def finished(self) -> bool:
        """Whether it need not be run again. Another run in its place is an error."""
        if not (self.directory / "state").is_dir():
            return False
        run = open_run(self.directory)
        if not _same(run.config, self.config):
            raise StoreError(
                f"{self.directory} holds a run with other settings: choose another directory"
            )
        return run.finished and run.config.train.rounds == self.rounds


@dataclass(frozen=True)
class Outcome:
    """The outcome of a cell: a run, or the reason why there is none."""

    cell: Cell
    run: Run | None
    reason: str = ""
    failed: bool = False  # it began and broke off; otherwise it was refused, or is not finished

    @property
    def broken(self) -> bool:
        """Whether something has to be fixed before this cell can have a result."""
        return self.failed or (self.run is not None and not self.run.trained)


Watcher = Callable[[Mapping[str, int], Sequence[Outcome]], None]
"""Called with the rounds done of the running cells, and the outcomes so far."""


class CellRunner(Protocol):
    """Carries out cells."""

    @property
    def open(self) -> bool:
        """Whether there is anything left to do."""
        ...

    def step(self) -> list[Outcome]:
        """Moves everything on, in a moment; what has ended."""
        ...

    def working(self) -> dict[str, int]:
        """The cells at work, by name, and how many rounds each has done."""
        ...

    def close(self) -> None:
        """Ends all running cells."""
        ...


def nth(cells: Sequence[Cell], number: int) -> Cell:
    """One cell by its number; the first is 1."""
    if not 1 <= number <= len(cells):
        raise ConfigError(f"--cell {number}: there are {len(cells)} cells, 1 to {len(cells)}")
    return cells[number - 1]


def collected(cells: Sequence[Cell]) -> list[Outcome]:
    """The outcomes of cells that other processes run or ran."""
    return [
        outcome_of(cell)
        if cell.finished()
        else Outcome(cell, None, f"not finished: {cell.rounds_done()} of {cell.rounds} rounds")
        for cell in cells
    ]


def outcome_of(cell: Cell) -> Outcome:
    """The outcome of a cell that is finished, here or on another machine."""
    run = open_run(cell.directory)
    remember(run.manifest.run, cell.config)
    return Outcome(cell, run)


def _same(found: Config, wanted: Config) -> bool:
    """Whether a run is what is wanted, apart from how long it runs and how it is carried out.

    Nor does it matter where the data lie: their checksum is compared when a run continues.
    """
    theirs, ours = found.model_dump(mode="json"), wanted.model_dump(mode="json")
    settled = wanted.settled().method.model_dump(mode="json")
    for key, value in settled.items():
        # What was derived from the length when the run was made stays as it was made.
        if ours["method"][key] != value:
            ours["method"][key] = theirs["method"].get(key)
    ours["train"]["rounds"] = theirs["train"]["rounds"]
    ours["data"]["dir"] = theirs["data"]["dir"]
    return bool(theirs == {**ours, "runtime": theirs["runtime"], "compare": theirs["compare"]})
