"""What the round loop asks of a fleet, and the messages between them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pfedes.core.client import Card
from pfedes.core.context import Metadata
from pfedes.core.measures import Measures
from pfedes.core.payload import Payload, Value
from pfedes.core.scores import Scores
from pfedes.core.wire import Base64, Digest, Hex, MetaSpec, Number


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
"""The metadata of every message with scores, which go into manifests unchanged."""

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
"""The metadata of every reply, besides the method's own payload."""

MEMBER_META: dict[str, MetaSpec] = {
    "nonce": Hex(16),
    "sum_key": Hex(32),
    "sum_signature": Base64(1024),
}
"""The metadata of a reply before a summand: that it is ready, and the key."""

RESERVED_META = frozenset({*REPLY_META, *MEMBER_META}) | {
    *("client", "status", "reason", "code", "n", "accuracy", "val_accuracy"),
    *("floats_down", "floats_up", "bytes_down", "bytes_up", "metadata_down", "metadata_up"),
}
"""Names that a method's metadata must not have: the loop uses them in replies and in rows."""

SUMMAND = "sum"
"""The one tensor that a client has for a sum: its change in whole numbers, and its weight."""

LAST_ROUND = 10**9
"""A round's number is part of file names, and is remembered."""

WITHHELD = frozenset({"flops", "seconds"})
"""The metadata of these that always stay with a participant that joined over a network.

FLOPs over samples, or seconds, reveal the architecture of its model. For the same reason `state` is
then a digest under a key of the participant's own: a plain one would confirm a guess of the model.
"""

STAYS: Mapping[Metadata, frozenset[str]] = {
    "all": WITHHELD,
    "scores": WITHHELD | {"samples", "loss", "state"},
    "none": WITHHELD | {"samples", "loss", "state", *SCORES_META},
}
"""What stays by `privacy.metadata`; unless that is "all", a method's own metadata stays, too."""

MEASURES = "measures"
"""The metadata with results class by class. They stay, unless a participant shares them."""

Share = Literal["samples", "loss", "scores", "zeros", "measures"]
SHARES: Mapping[Share, frozenset[str]] = {
    "samples": frozenset({"samples"}),
    "loss": frozenset({"loss"}),
    "scores": frozenset(SCORES_META),
    "zeros": frozenset({"zeros"}),
    "measures": frozenset({MEASURES}),
}
"""The words of a participant's `share`, and the metadata that each lets leave."""

BY_DEFAULT: tuple[Share, ...] = ("samples", "loss", "scores", "zeros")
"""The `share` of a participant that does not set it."""


@dataclass(frozen=True)
class Reply:
    """A client's answer to a task.

    `measures` go beside the payload, on this machine or cluster; a participant keeps them unless
    it shares them.
    """

    client: str
    payload: Payload
    measures: Measures | None = None

    def check_measures(self, classes: int) -> None:
        """Raises a WireError for measures that are of other classes."""
        if self.measures is not None:
            self.measures.check_classes(classes)

    @property
    def scores(self) -> Scores | None:
        """None where they stay with a participant."""
        if not self.payload.meta.keys() >= SCORES_META.keys():
            return None
        return Scores.from_counts(self.payload.meta, self.measures)


FailureCode = Literal["failed", "refused", "missing base", "not finite", "silent"]
"""Why there is no answer, as a code for programs; the text of a reason is for people.

`refused`: the client did not do what it was asked for; `missing base`: it lacks the version that
the task starts from; `not finite`: its loss or its parameters are no numbers any more; `silent`: it
did not answer in time; `failed`: anything else.
"""


@dataclass(frozen=True)
class Failure:
    """A client that did not answer. `versions` says what it has if it lacked its base."""

    client: str
    reason: str
    versions: tuple[int, ...] | None = None
    code: FailureCode = "failed"


@dataclass(frozen=True)
class Scored:
    """A client's scores with what it would be sent now."""

    client: str
    scores: Scores

    def check_measures(self, classes: int) -> None:
        """Raises a WireError for measures that are of other classes."""
        if self.scores.measures is not None:
            self.scores.measures.check_classes(classes)


class Fleet(Protocol):
    """Hands tasks to clients. Answers come in the order in which they finish."""

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
