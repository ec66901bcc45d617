"""What the round loop asks of a fleet, and the messages between them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field, model_validator

from pfedes.client import Card, Scores
from pfedes.payload import Digest, MetaSpec, Number, Payload, Value
from pfedes.section import Section


class RuntimeConfig(Section):
    """How a run is carried out. Changes speed, never results."""

    fleet: Literal["serial", "workers", "cluster"] = Field(
        "workers", description="workers (processes on this machine) | serial | cluster"
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
    cluster: str = Field(
        "",
        pattern=r"^$|^(tls|tcp)://[^\s/]+:[0-9]+$",
        description="address of a Dask scheduler: tls://host:port",
    )
    tls_ca: str = Field("", description="certificate of the cluster's authority; '' = Dask's own")
    tls_cert: str = Field("", description="certificate that is shown to the cluster")
    tls_key: str = Field("", description="its private key")
    mixed_hardware: bool = Field(
        False, description="let nodes with other processors join; bits may then differ"
    )
    share_directory: bool = Field(
        True, description="nodes that see the run directory use it; false: states always travel"
    )
    deadline: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto", description="seconds after which a silent node's task goes to another one as well"
    )
    wait_for_nodes: float = Field(
        300, ge=0, description="seconds to wait for a node of the cluster when there is none"
    )

    @model_validator(mode="after")
    def _complete(self) -> "RuntimeConfig":
        if self.fleet == "cluster" and not self.cluster:
            raise ValueError("fleet = 'cluster' needs cluster = 'tls://host:port' (or --cluster)")
        given = [bool(path) for path in (self.tls_ca, self.tls_cert, self.tls_key)]
        if any(given) and not all(given):
            raise ValueError("tls_ca, tls_cert and tls_key belong together: give all three")
        return self


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


SCORES_META: dict[str, MetaSpec] = {
    "val_correct": Number(int),
    "val_total": Number(int),
    "test_correct": Number(int),
    "test_total": Number(int, least=1),
}
"""What every message says that carries scores: they go into manifests as they are."""

REPLY_META: dict[str, MetaSpec] = {
    "run": str,
    "round": int,
    "base": int,
    "samples": Number(int, least=1),
    "loss": float,
    **SCORES_META,
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

    @property
    def places(self) -> int:
        """How many clients are trained at the same time."""
        ...

    @property
    def manner(self) -> str:
        """How the work is done, in a few words: '2 workers'."""
        ...

    def enroll(self) -> list[Card]:
        """The cards of all clients, with no more on them than the method needs."""
        ...

    def round(self, tasks: Sequence[Task]) -> Iterator[Reply | Failure]: ...

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Scored | Failure]: ...

    def close(self) -> None: ...
