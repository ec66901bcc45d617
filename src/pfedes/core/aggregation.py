"""Combining what clients upload: the mean, and rules that a few liars cannot move far.

The robust rules count every client once, whatever number of samples it claims: a weight would be
one more thing to lie about. The mean weighs by samples; among participants `federation.max_share`
bounds what a claim can buy.
"""

import logging
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from pfedes.section import Section

log = logging.getLogger(__name__)

ENOUGH = 5
"""With this many participants, a robust rule costs little: each is a fifth at most."""

MEDIANS = 4
"""No participant counts for more than this many times the median of those present."""

Tensors = Mapping[str, Tensor]


Averaging = Literal["weighted", "uniform"]


class AggregationConfig(Section):
    """How the server combines uploads, for methods that average parameters."""

    kind: Literal["mean", "median", "trimmed_mean", "krum"] = Field(
        "mean", description="mean | median | trimmed_mean | krum (the last three: robust)"
    )
    trim: float = Field(
        0.1,
        ge=0,
        lt=0.5,
        description="trimmed_mean: share of uploads cut off at either end; at least one",
    )
    byzantine: int = Field(
        0, ge=0, description="krum: number of clients that may send arbitrary values"
    )
    max_norm: float = Field(
        0.0, ge=0, description="largest L2 norm of upload minus download; 0 = any"
    )

    @property
    def fewest(self) -> int:
        """The number of uploads below which the rule promises nothing."""
        if self.kind == "krum":
            return 2 * self.byzantine + 3
        # Of two uploads median and trimmed mean are the plain mean, which a single liar decides.
        trims = self.kind == "median" or (self.kind == "trimmed_mean" and self.trim > 0)
        return 3 if trims else 1

    def advice(self, participants: int) -> str | None:
        """A rule that so many participants had better agree on; None if this one will do."""
        if self.kind != "mean" or participants < ENOUGH:
            return None
        return (
            f"with {participants} participants a robust rule would bound what one of them can do: "
            'the coordinator can set aggregation.kind = "median" or "trimmed_mean"'
        )

    @property
    def is_plain(self) -> bool:
        """Whether the rule is the plain mean of all uploads that pass the allow-list."""
        return self.kind == "mean" and not self.max_norm


def weights_of(samples: Sequence[int], averaging: Averaging = "weighted") -> list[float]:
    """n_k / n, with n taken over the clients that answered; or the same for all.

    The paper's text sums n over all clients; weights would then add up to the participation rate
    and the extractor would shrink every round.
    """
    counts = samples if averaging == "weighted" else [1] * len(samples)
    weights = [count / sum(counts) for count in counts]
    assert abs(sum(weights) - 1) < 1e-6
    return weights


def bounded(counts: Sequence[int], max_share: float) -> list[int]:
    """Sample counts, cut off at a ceiling that keeps every client's share within bounds.

    The ceiling is the largest whole number that is at most `MEDIANS` times the median count and, as
    a share of what is left of all counts, at most `max_share` (or an equal part, if that is more:
    shares add up to 1). The others gain in proportion to their own counts. 1 bounds nothing.
    """
    if max_share >= 1:
        return list(counts)
    ordered = sorted(counts)
    share = max(Fraction(max_share), Fraction(1, len(counts)))
    twice_the_median = ordered[(len(counts) - 1) // 2] + ordered[len(counts) // 2]
    most = min(ordered[-1], MEDIANS * twice_the_median // 2)

    def exceeds(ceiling: int) -> bool:
        return ceiling > share * sum(min(count, ceiling) for count in counts)

    # A higher ceiling never gives a smaller share; the smallest count is an equal part.
    ceilings = range(ordered[0], most + 1)
    ceiling = ceilings[bisect_right(ceilings, False, key=exceeds) - 1]
    return [min(count, ceiling) for count in counts]


class Voices:
    """How many samples count for each client, and a line about whose were bounded."""

    def __init__(self, max_share: float) -> None:
        self.max_share = max_share
        self._cut: dict[str, tuple[float, float]] = {}  # shares before and after, by name

    def among(self, counts: Mapping[str, int]) -> list[int]:
        """The counts of those whose reports are averaged, in their order, none too large."""
        kept = bounded(list(counts.values()), self.max_share)
        for (name, count), left in zip(counts.items(), kept, strict=True):
            if left < count:
                shares = count / sum(counts.values()), left / sum(kept)
                self._cut[name] = max(self._cut.get(name, shares), shares)
        return kept

    def log(self, round: int) -> None:
        """Says whose share was cut; of several shares of one client, the largest."""
        for name, (before, after) in self._cut.items():
            log.warning(
                "round %d: %s counts for %.1f %% instead of %.1f %% (federation.max_share)",
                *(round, name, 100 * after, 100 * before),
            )


def combine(
    uploads: Sequence[Tensors], weights: Sequence[float], config: AggregationConfig
) -> dict[str, Tensor]:
    """The uploads as one, by the rule that is configured. Only the mean heeds the weights."""
    match config.kind:
        case "mean":
            return mean(uploads, weights)
        case "median":
            return trimmed_mean(uploads, (len(uploads) - 1) // 2)
        case "trimmed_mean":
            return trimmed_mean(uploads, _cut(config.trim, len(uploads)))
        case "krum":
            return dict(uploads[krum(uploads, config.byzantine)])


def mean(uploads: Sequence[Tensors], weights: Sequence[float]) -> dict[str, Tensor]:
    """The weighted mean, summed in double precision and in the order given."""

    def weighted(tensors: Sequence[Tensor]) -> Tensor:
        total = torch.zeros(tensors[0].shape, dtype=torch.float64)
        for tensor, weight in zip(tensors, weights, strict=True):
            total += tensor.double() * weight
        return total

    return _by_name(uploads, weighted)


def trimmed_mean(uploads: Sequence[Tensors], cut: int) -> dict[str, Tensor]:
    """Number by number, the mean without the `cut` smallest and the `cut` largest.

    With all cut but the middle one or two it is the median.
    """

    def middle(tensors: Sequence[Tensor]) -> Tensor:
        ordered = torch.stack([tensor.double() for tensor in tensors]).sort(0).values
        return ordered[cut : len(tensors) - cut].mean(0)

    return _by_name(uploads, middle)


def _cut(trim: float, count: int) -> int:
    """How many are cut off at either end: the share, but one at least if any and enough."""
    if not trim or count < 3:
        return 0
    return max(1, math.floor(trim * count + 1e-9))  # 0.29 * 100 is 28.999...


def krum(uploads: Sequence[Tensors], byzantine: int) -> int:
    """The upload with the smallest sum of squared distances to its n - f - 2 nearest others.

    Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, 2017.
    Of equal ones, the first.
    """
    distances = torch.zeros(len(uploads), len(uploads), dtype=torch.float64)
    for name, tensor in uploads[0].items():
        if tensor.is_floating_point():  # counters are not learnt
            rows = torch.stack([upload[name].double().flatten() for upload in uploads])
            for index, row in enumerate(rows):
                distances[index] += (rows - row).square().sum(1)
    # The nearest is the upload itself, at distance 0.
    nearest = max(1, len(uploads) - byzantine - 2)
    scores = distances.sort(1).values[:, 1 : nearest + 1].sum(1)
    return int(scores.argmin())


def norm(tensors: Tensors) -> float:
    """The L2 norm of all numbers together."""
    squares = [t.double().square().sum() for t in tensors.values() if t.is_floating_point()]
    return math.sqrt(float(sum(squares)))


def _by_name(
    uploads: Sequence[Tensors], rule: Callable[[Sequence[Tensor]], Tensor]
) -> dict[str, Tensor]:
    """The rule applied to each name; the result has the type that was uploaded."""
    result = {}
    for name, tensor in uploads[0].items():
        found = rule([upload[name] for upload in uploads])
        # Whole numbers (the step counts of batch normalisation) stay whole.
        result[name] = (found if tensor.is_floating_point() else found.round()).to(tensor.dtype)
    return result
