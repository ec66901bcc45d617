"""A participant's status. Imports nothing heavy: `pfedes join` uses it while it waits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pfedes.core.measures import Metric
from pfedes.core.scores import Scores
from pfedes.errors import DamageError, StoreError
from pfedes.files import parse_json, read
from pfedes.section import Section, unknown_fields

JOIN_LOCK = "join.lock"
SEAT = "seat.json"


class Measured(Section):
    """A participant's version after a round, with the download that its model needs."""

    round: int
    version: int
    scores: Scores


class ParticipantRecord(Section):
    """A participant's status in a run, as far as it knows."""

    run: str = ""  # '' until there is one
    round: int = 0  # the last round that it knows of
    accepted: int = 0  # its version that the federation continues from
    best: int = 0  # of the accepted ones, the best by its own validation samples; 0 = none
    best_validation: float = -1.0
    metric: Metric = "accuracy"  # by which they are the best
    before: Scores | None = None  # untrained
    after: Scores | None = None  # of the accepted version, right after its training
    measured: Measured | None = None  # the last with what the server holds
    best_measured: Measured | None = None  # by its own validation samples
    finished: bool = False
    about: Mapping[str, Any] = {}  # what it ran on
    earlier: tuple["ParticipantRecord", ...] = ()  # of other runs in which a version was accepted

    @property
    def scores(self) -> Scores | None:
        """Scores of the participant's present model."""
        if self.measured is not None and self.measured.round >= self.accepted:
            return self.measured.scores
        return self.after

    def judged_by(self, metric: Metric) -> "ParticipantRecord":
        """The record of who chooses the best by that: by another, the best so far is none."""
        if metric == self.metric:
            return self
        nothing = {"best": 0, "best_validation": -1.0, "best_measured": None}
        return self.model_copy(update={**nothing, "metric": metric})

    def turned_to(self, run: str, about: Mapping[str, Any]) -> "ParticipantRecord":
        """The record of that run, which may be an earlier one; the present one is not forgotten."""
        others = {r.run: r for r in (*self.earlier, self) if r.accepted or r.measured}
        found = others.pop(run, ParticipantRecord(run=run, before=self.before, about=about))
        rest = tuple(other.model_copy(update={"earlier": ()}) for other in others.values())
        return found.model_copy(update={"earlier": rest})


def read_record(directory: Path) -> ParticipantRecord | None:
    """The record in a participant's directory; None before the first task."""
    path = directory / SEAT
    if not path.exists():
        return None
    try:
        return ParticipantRecord.model_validate(parse_json(path, read(path)))
    except ValidationError as error:
        if newer := unknown_fields(error):
            raise StoreError(
                f"{path} was written by a newer pfedes: this one does not know {newer}; update it"
            ) from None
        raise DamageError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
