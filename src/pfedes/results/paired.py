"""Differences between two methods on the same clients, with an interval.

Methods that are compared share partition, selections and clients, so a client's accuracy under one
method is paired with its accuracy under the other. What differs between clients, and that is most
of what varies, does not blur the difference.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["ahead", "behind", "not decided"]
Accuracies = Sequence[Sequence[float]]
"""Accuracies by seed and client, as fractions, with the clients in one order."""

LEVEL = 0.95
DRAWS = 10_000
SEED = 0  # fixed: the same accuracies give the same interval
AT_A_TIME = 2**22  # numbers drawn, which bounds memory


@dataclass(frozen=True)
class Difference:
    """Mean accuracy of one method minus that of another, and its bootstrap interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """Whether the interval lies on one side of zero."""
        if self.low > 0:
            return "ahead"
        return "behind" if self.high < 0 else "not decided"

    def __str__(self) -> str:
        """In points."""
        return f"{100 * self.mean:+.2f} [{100 * self.low:+.2f}, {100 * self.high:+.2f}]"


def difference(ours: Accuracies, theirs: Accuracies) -> Difference:
    """The mean over seeds and clients of ours minus theirs, with a 95 % bootstrap interval.

    Clients are drawn with replacement; where there are several seeds, these are drawn first. Seeds
    and clients must be the same on both sides, in the same order, or a ValueError is raised.
    """
    if not ours or len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} seeds cannot be paired")
    gaps = []
    for mine, other in zip(ours, theirs, strict=True):
        if not mine or len(mine) != len(other):
            raise ValueError(f"{len(mine)} and {len(other)} clients cannot be paired")
        gaps.append(np.subtract(mine, other, dtype=np.float64))
    means = np.concatenate(list(_resampled(gaps)))
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Difference(float(np.mean([gap.mean() for gap in gaps])), float(low), float(high))


def _resampled(gaps: Sequence[NDArray[np.float64]]) -> Iterator[NDArray[np.float64]]:
    """The means of `DRAWS` samples, each as large as what is sampled from."""
    generator = np.random.default_rng(SEED)
    seeds = generator.integers(len(gaps), size=(DRAWS, len(gaps)))
    most = max(map(len, gaps)) * len(gaps)
    step = max(1, AT_A_TIME // most)
    for start in range(0, DRAWS, step):
        chosen = seeds[start : start + step]
        means = np.empty(chosen.shape)
        for seed, gap in enumerate(gaps):
            places = chosen == seed
            clients = generator.integers(len(gap), size=(int(places.sum()), len(gap)))
            means[places] = gap[clients].mean(axis=1)
        yield means.mean(axis=1)
