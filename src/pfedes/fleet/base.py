"""What the round loop asks of a fleet, and the messages between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field

from pfedes.client import Card, Scores
from pfedes.payload import Digest, MetaSpec, Number, Payload, Value
from pfedes.section import Section


class RuntimeConfig(Section):
    """How a run is carried out. Changes speed, never results."""

    fleet: Literal["serial", "workers"] = Field(
        "workers", description="workers (processes on this machine) | serial (one after another)"
    )
    workers: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="how many worker processes; auto = one per core"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="where clients train: auto (a GPU if there is one) | cpu | cuda | mps"
    )
    threads: int = Field(1, ge=1, description="threads per client; results are equal for equal")
    keep_rounds: int = Field(2, ge=1, description="how many rounds back a run can be resumed from")
    report: bool = Field(
        True, description="write report.html at the end; 'pfedes report' writes it at any time"
    )


@dataclass(frozen=True)
class Task:
    """One client's work in one round, starting from its `base` version."""

    run: str
    client: str
    round: int
    base: int
    download: Payload

    def identity(self) -> dict[str, Value]:
        """Tasks with the same identity are the same task, and have the same answer."""
        return {
            "run": self.run,
            "client": self.client,
            "round": self.round,
            "base": self.base,
            "download": self.download.digest(),
        }

    @property
    def metadata(self) -> int:
        """Metadata values sent down: the identity and what the method adds."""
        return len(self.identity()) + self.download.metadata


REPLY_META: dict[str, MetaSpec] = {
    "run": str,
    "round": int,
    "base": int,
    "samples": Number(int, least=1),
    "loss": float,
    "val_correct": Number(int),
    "val_total": Number(int),
    "test_correct": Number(int),
    "test_total": Number(int, least=1),
    "flops": Number(int, most=2**80),
    "seconds": Number(float),
    "state": Digest(),  # of the client's new state
}
"""What every reply says besides the method's own payload."""


@dataclass(frozen=True)
class Reply:
    """A client's answer to a task."""

    client: str
    payload: Payload


@dataclass(frozen=True)
class Failure:
    """A client that did not answer. `versions` says what it has if it lacked its base."""

    client: str
    reason: str
    versions: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Scored:
    """A client's scores with what it would be sent now."""

    client: str
    scores: Scores


class Fleet(Protocol):
    """Where clients live. Answers may come in any order, as they finish."""

    def enroll(self) -> list[Card]:
        """The cards of all clients, with no more on them than the method needs."""
        ...

    def round(self, tasks: Sequence[Task]) -> Iterator[Reply | Failure]: ...

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Scored | Failure]: ...

    def close(self) -> None: ...
