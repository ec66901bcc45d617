"""The uncertainty of scores: intervals, p-values, and corrections for many attacks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom, norm

Numbers = NDArray[np.float64]
Bools = NDArray[np.bool_]
Groups = NDArray[np.int64]

RESAMPLES = 1000
CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
"""The chance of each side; above a baseline, only one side counts."""

Statistic = Callable[[Numbers], float]
"""A score, given how often each client counts."""


@dataclass(frozen=True)
class Score:
    """A score with its 95 % interval, and the chance of one as high if the baseline were true."""

    value: float
    low: float
    high: float
    chance: float

    def is_above(self, baseline: float) -> bool:
        return self.low > baseline and self.chance <= TAIL


def share_of(hits: int, trials: int, baseline: float) -> Score:
    """The share of hits in independent trials (Clopper and Pearson 1934)."""
    low = float(beta.ppf(TAIL, hits, trials - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - TAIL, hits + 1, trials - hits)) if hits < trials else 1.0
    return Score(hits / trials, low, high, float(binom.sf(hits - 1, trials, baseline)))


def resampled(
    statistic: Statistic, groups: Groups, baseline: float, rng: np.random.Generator
) -> Score:
    """A score of clients, with the interval that drawing whole groups of them again gives.

    `groups` has a number for each client: those of a cohort that an attacker cannot tell apart are
    drawn together.
    """
    kinds, place = np.unique(groups, return_inverse=True)
    value = statistic(np.ones(len(groups)))
    found = np.empty(RESAMPLES)
    for number in range(RESAMPLES):
        drawn = np.bincount(rng.integers(len(kinds), size=len(kinds)), minlength=len(kinds))
        found[number] = statistic(drawn[place].astype(np.float64))
    found = found[~np.isnan(found)]  # a resample may have no client of a class
    low, high = np.quantile(found, [TAIL, 1 - TAIL])
    spread = float(found.std())
    if spread == 0:
        chance = 0.0 if value > baseline else 1.0
    else:
        chance = float(norm.sf((value - baseline) / spread))
    return Score(value, float(low), float(high), chance)


class Ranking:
    """How well scores rank the clients that have a class above those that do not.

    The area under the ROC curve, averaged over the classes that some have and some do not.
    """

    def __init__(self, scores: Numbers, truth: Bools) -> None:
        """Both have a row for each client and a column for each class."""
        self._classes = [
            (np.flatnonzero(have), np.flatnonzero(~have), _above(score[have], score[~have]))
            for score, have in zip(scores.T, truth.T, strict=True)
            if have.any() and not have.all()
        ]

    def __bool__(self) -> bool:
        return bool(self._classes)

    def area(self, weights: Numbers) -> float:
        found = [_area(weights[have], above, weights[not_]) for have, not_, above in self._classes]
        known = [area for area in found if not math.isnan(area)]
        return float(np.mean(known)) if known else math.nan


def area_between(higher: Numbers, lower: Numbers) -> float:
    """The chance that one of the first is above one of the second."""
    return float(_above(higher, lower).mean())


def _above(higher: Numbers, lower: Numbers) -> Numbers:
    difference = higher[:, None] - lower[None, :]
    above: Numbers = (difference > 0) + 0.5 * (difference == 0)
    return above


def _area(first: Numbers, above: Numbers, second: Numbers) -> float:
    pairs = float(first.sum() * second.sum())
    return float(first @ above @ second) / pairs if pairs else math.nan


def for_many(chances: Sequence[float]) -> list[float]:
    """The chances of several attacks, each as large as their number makes it (Holm 1979)."""
    order = sorted(range(len(chances)), key=lambda place: chances[place])
    found, largest = [0.0] * len(chances), 0.0
    for before, place in enumerate(order):
        largest = max(largest, min(1.0, (len(chances) - before) * chances[place]))
        found[place] = largest
    return found
