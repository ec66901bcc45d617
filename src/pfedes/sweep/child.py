"""What a sweep asks of its child processes, and what they answer: a line of JSON each."""

import json
from dataclasses import asdict, dataclass


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
