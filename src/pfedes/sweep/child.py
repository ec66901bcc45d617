"""What a sweep asks of its child processes, and what they answer: a line of JSON each."""

import json
from dataclasses import asdict, dataclass

from pfedes.results.run import open_run
from pfedes.store.trust import remember
from pfedes.sweep.cells import Cell


@dataclass(frozen=True)
class CellRequest:
    """One run to carry out: to begin with a configuration, or to continue to a round."""

    directory: str
    rounds: int
    config: str = ""  # as TOML; '' = the run is there, and continues
    data_dir: str = ""  # where the data of a run that continues lies now; '' = where it was

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> "CellRequest":
        return cls(**json.loads(line))


@dataclass(frozen=True)
class CellResult:
    """How it ended: '' or why there is no result."""

    reason: str = ""
    failed: bool = False  # the method's code did; otherwise the run was refused

    def to_line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> "CellResult":
        return cls(**json.loads(line))


def request_of(cell: Cell) -> CellRequest:
    """The request to carry out a cell, or the rest of it."""
    if (cell.directory / "state").is_dir():
        # What the run names is what this user names: that was compared before.
        remember(open_run(cell.directory).manifest.run, cell.config)
        return CellRequest(str(cell.directory), cell.rounds, data_dir=cell.config.data.dir)
    return CellRequest(str(cell.directory), cell.rounds, cell.config.to_toml())
