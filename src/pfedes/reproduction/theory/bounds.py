"""Lemma 1 and Theorem 1 of the paper as numbers: what was measured of a client, and the bounds.

Symbols: g and p are the gradients, with respect to the client's model w, of the raw loss
L(w) = CE(F(x)) and of the enhanced loss CE(F(G(x))), both over all of the client's training
samples; m = (1 - mu) g + mu p is what phase 1 descends along; mu~ = 1 - mu; E counts local
iterations (steps of SGD), not epochs. L is the raw loss: docs/theory.md says why.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from pydantic import Field, ValidationError

from pfedes.errors import DamageError
from pfedes.section import Section


class Point(Section):
    """A client's model before one local iteration. Noise is that of one batch's gradients."""

    iteration: int = Field(ge=0)
    raw_loss: float
    enhanced_loss: float
    raw_square: float  # ||g||^2
    enhanced_square: float  # ||p||^2
    inner: float  # <g, p>
    raw_noise: float  # sigma^2, here
    enhanced_noise: float  # delta^2, here
    shared_noise: float  # both come from the same batch: E<g_batch - g, p_batch - p>

    def mixture_square(self, mu: float) -> float:
        """||m||^2."""
        return _mixed(self.raw_square, self.inner, self.enhanced_square, mu)

    def mixture_noise(self, mu: float) -> float:
        """E||m_batch - m||^2."""
        return max(0.0, _mixed(self.raw_noise, self.shared_noise, self.enhanced_noise, mu))

    def progress(self, mu: float) -> float:
        """<g, m>: what a small step wins."""
        return (1 - mu) * self.raw_square + mu * self.inner

    @property
    def gap_square(self) -> float:
        """||p - g||^2: how far the two gradients are apart."""
        return self.enhanced_square - 2 * self.inner + self.raw_square


class LocalWork(Section):
    """Phase 1 of a client in one round. `points` holds some or all of its iterations."""

    round: int = Field(ge=1)
    iterations: int = Field(ge=1)  # E
    points: tuple[Point, ...] = Field(min_length=1)  # the first is iteration 0
    raw_loss_after: float
    enhanced_loss_after: float  # with the extractor of this round
    replay_distance: float  # the largest difference of a parameter to the stored state

    @property
    def raw_loss_before(self) -> float:
        return self.points[0].raw_loss

    def total(self, value: Callable[[Point], float]) -> float:
        """The sum over all E iterations; those between two points count as the average one."""
        return self.iterations * sum(map(value, self.points)) / len(self.points)


class Curvature(Section):
    """The largest |eigenvalue| of the raw loss's Hessian before a round, from below."""

    round: int
    value: float


class Measurements(Section):
    """All that was measured of one client in one run."""

    client: str
    architecture: str
    samples: int  # of training
    batch_size: int
    mu: float
    eta: float
    rounds: tuple[LocalWork, ...] = Field(min_length=1)
    secants: tuple[float, ...]  # ||g' - g|| / ||w' - w|| from point to point
    bends: tuple[float, ...]  # 2 (L' - L - <g, w' - w>) / ||w' - w||^2, too
    curvatures: tuple[Curvature, ...] = Field(min_length=1)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise DamageError(f"these are no measurements: {error.errors()[0]['msg']}") from None

    def points(self) -> Iterator[Point]:
        for work in self.rounds:
            yield from work.points

    @property
    def smoothness(self) -> float:
        """L1, as far as this path shows it: a lower bound of any constant that would do."""
        return max([*self.secants, *self.bends, *(c.value for c in self.curvatures)])

    @property
    def raw_noise(self) -> float:
        """sigma^2, the largest on the path."""
        return max(point.raw_noise for point in self.points())

    @property
    def enhanced_noise(self) -> float:
        """delta^2, the largest on the path."""
        return max(point.enhanced_noise for point in self.points())

    @property
    def mixture_noise(self) -> float:
        """V, the largest variance of what a step really follows."""
        return max(point.mixture_noise(self.mu) for point in self.points())

    @property
    def written_noise(self) -> float:
        """sigma^2 + delta^2, Lemma 1's noise of a whole round."""
        return self.raw_noise + self.enhanced_noise

    @property
    def mended_noise(self) -> float:
        """E V, the noise of as many steps as a round has."""
        return max(work.iterations for work in self.rounds) * self.mixture_noise

    @property
    def largest_rate(self) -> float:
        """2 / (L1 mu~): from here on Theorem 1 divides by a number that is not positive."""
        return 2 / (self.smoothness * (1 - self.mu))

    @property
    def decrease(self) -> float:
        """eta mu~ - L1 eta^2 mu~^2 / 2, what ||g||^2 is multiplied by in Lemma 1."""
        step = self.eta * (1 - self.mu)
        return step - self.smoothness * step**2 / 2


@dataclass(frozen=True)
class Bounds:
    """A right-hand side in three readings; infinite where it says nothing."""

    written: float  # as the paper has it
    mended: float  # with the noise of E steps, and the variance of the mixture
    complete: float  # with no term dropped: this one follows from the assumptions


READINGS = {
    "written": "as written",
    "mended": "with the noise of E steps",
    "complete": "no term dropped",
}
"""What the fields of `Bounds` are called."""


def lemma(measured: Measurements, work: LocalWork) -> Bounds:
    """What the raw loss after a round is bounded by, in expectation."""
    before, mu, eta = work.raw_loss_before, measured.mu, measured.eta
    quadratic = measured.smoothness * eta**2 / 2
    common = before - measured.decrease * work.total(lambda point: point.raw_square)
    return Bounds(
        written=common + quadratic * measured.written_noise,
        mended=common + quadratic * work.iterations * measured.mixture_noise,
        complete=before
        - eta * work.total(lambda point: point.progress(mu))
        + quadratic * work.total(lambda point: point.mixture_square(mu) + point.mixture_noise(mu)),
    )


def gradient_mean(measured: Measurements, rounds: int) -> float:
    """Theorem 1's left side: the mean over rounds of a round's summed ||g||^2."""
    return _mean_total(measured.rounds[:rounds], lambda point: point.raw_square)


def theorem(measured: Measurements, rounds: int) -> Bounds:
    """Theorem 1's right-hand side after so many of the client's rounds."""
    works = measured.rounds[:rounds]
    gained = (works[0].raw_loss_before - works[-1].raw_loss_after) / len(works)
    floors = noise_floors(measured, rounds)
    return Bounds(
        written=gained / measured.decrease + floors.written,
        mended=gained / measured.decrease + floors.mended,
        complete=2 * gained / measured.eta + floors.complete,
    )


def theorem_ahead(measured: Measurements, noise: float, rounds: float) -> float:
    """The same for any T, as the proof ends: no loss is below 0, so Delta is at most the first."""
    first = measured.rounds[0].raw_loss_before
    return first / rounds / measured.decrease + smallest_epsilon(measured, noise)


def noise_floors(measured: Measurements, rounds: int | None = None) -> Bounds:
    """What is left of Theorem 1's right-hand side however many rounds follow.

    Also the smallest epsilon for which the run's learning rate is admissible.
    """
    works = measured.rounds[:rounds]
    mu, eta, smoothness = measured.mu, measured.eta, measured.smoothness
    # <g, m> is half of ||g||^2 + ||m||^2 - mu^2 ||p - g||^2; nothing is assumed of <g, p>.
    complete = (
        mu**2 * _mean_total(works, lambda point: point.gap_square)
        + max(0.0, smoothness * eta - 1) * _mean_total(works, lambda p: p.mixture_square(mu))
        + smoothness * eta * _mean_total(works, lambda point: point.mixture_noise(mu))
    )
    return Bounds(
        smallest_epsilon(measured, measured.written_noise),
        smallest_epsilon(measured, measured.mended_noise),
        complete,
    )


def smallest_epsilon(measured: Measurements, noise: float) -> float:
    """Where the run's learning rate begins to be admissible; infinite: it never is."""
    if measured.decrease <= 0:
        return math.inf
    return measured.smoothness * measured.eta**2 * noise / 2 / measured.decrease


def admissible_rate(measured: Measurements, noise: float, epsilon: float) -> float:
    """2 epsilon mu~ / (L1 (noise + mu~^2 epsilon)), Theorem 1's condition on eta."""
    kept = 1 - measured.mu
    return 2 * epsilon * kept / (measured.smoothness * (noise + kept**2 * epsilon))


def step_a(point: Point) -> bool:
    """Whether <g, p> may be dropped, as step (a) of the proof does."""
    return point.inner >= 0


def step_d(point: Point, mu: float) -> bool:
    """Whether ||m|| <= (1 - mu) ||g||, as step (d) of the proof has it."""
    return point.mixture_square(mu) <= (1 - mu) ** 2 * point.raw_square


def steps_together(point: Point, measured: Measurements) -> bool:
    """Whether what (a) gives away makes up for what (d) takes, at this learning rate."""
    mu, eta = measured.mu, measured.eta
    quadratic = measured.smoothness * eta**2 / 2
    kept = -eta * point.progress(mu) + quadratic * point.mixture_square(mu)
    return kept <= -measured.decrease * point.raw_square


def extractor_shifts(measured: Measurements) -> list[float]:
    """How much each new extractor changed mu CE(F(G(x))), the model being the same."""
    return [
        measured.mu * (after.points[0].enhanced_loss - before.enhanced_loss_after)
        for before, after in pairwise(measured.rounds)
    ]


def _mixed(raw: float, both: float, enhanced: float, mu: float) -> float:
    """A quadratic form at (1 - mu, mu)."""
    return (1 - mu) ** 2 * raw + 2 * mu * (1 - mu) * both + mu**2 * enhanced


def _mean_total(works: Sequence[LocalWork], value: Callable[[Point], float]) -> float:
    return math.fsum(work.total(value) for work in works) / len(works)
