"""The results of single attacks, and the verdict on all of them together."""

from collections.abc import Sequence
from dataclasses import dataclass

from pfedes.audit.intervals import Score, for_many
from pfedes.results.findings import Finding, Situation, Verdict

FEWEST_CLIENTS = 60
FEWEST_GROUPS = 10
"""Clients, and cohorts of which only the mean is seen, below which an interval says nothing."""


@dataclass(frozen=True)
class AttackResult:
    """One attack in one situation, and how it went; without an estimate it was not tried."""

    attack: str
    sees: str
    situation: Situation
    measure: str
    baseline: float = 0.0
    estimate: Score | None = None
    trials: int = 0
    is_enough: bool = True
    shuffled: float | None = None
    note: str = ""


def judged(attempts: Sequence[AttackResult]) -> list[Finding]:
    """The findings. With many attacks, chance alone would make one succeed: that is allowed for."""
    tried = [attempt for attempt in attempts if attempt.estimate is not None and attempt.is_enough]
    chances = [attempt.estimate.chance for attempt in tried if attempt.estimate is not None]
    of_all = dict(zip(map(id, tried), for_many(chances), strict=True))
    return [_finding(attempt, of_all.get(id(attempt))) for attempt in attempts]


def _finding(attempt: AttackResult, chance: float | None) -> Finding:
    found = attempt.estimate
    if found is None:
        return Finding(
            attack=attempt.attack,
            sees=attempt.sees,
            situation=attempt.situation,
            verdict="not tried",
            note=attempt.note,
        )
    verdict: Verdict = "too few to tell"
    if chance is not None:
        adjusted = Score(found.value, found.low, found.high, chance)
        verdict = "leak" if adjusted.is_above(attempt.baseline) else "none found"
    return Finding(
        attack=attempt.attack,
        sees=attempt.sees,
        situation=attempt.situation,
        verdict=verdict,
        measure=attempt.measure,
        value=found.value,
        low=found.low,
        high=found.high,
        baseline=attempt.baseline,
        shuffled=attempt.shuffled,
        chance=chance,
        trials=attempt.trials,
        note=attempt.note,
    )
