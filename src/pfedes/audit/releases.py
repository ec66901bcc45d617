"""Whether noise hides a client as well as its epsilon claims.

Many releases are made with one client's change at the clip, and as many without it. How well they
can be told apart gives a lower bound of epsilon. If that bound exceeds the claimed epsilon, the
noise is too small or missing. A smaller bound proves nothing.
"""

from collections.abc import Callable
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from pfedes.audit.attempts import AttackResult
from pfedes.audit.intervals import TAIL, Score
from pfedes.privacy.accounting import epsilon_of
from pfedes.privacy.encoding import ONE
from pfedes.privacy.noise import NoiseStream, gaussian, variance_of

MECHANISM = "mechanism"
RELEASES = 20_000
THRESHOLDS = 200
NOISE = 1.0
DELTA = 1e-5

Whole = NDArray[np.int64]
Sampler = Callable[[int, int, NoiseStream], Whole]


def attempt_on_noise(
    seed: int, releases: int = RELEASES, sampler: Sampler = gaussian
) -> AttackResult:
    """Compares the epsilon that can be proved with the claimed one, for noise as large as a clip.

    Of a change at the clip one number is looked at, all of it: in which direction a change goes
    makes no difference to noise that is equal in all.
    """
    stream = NoiseStream(sha256(f"audit {seed}".encode()).digest(), b"pfedes-audit-mechanism")
    noise = sampler(variance_of(NOISE), 2 * releases, stream)
    without, with_it = noise[:releases], noise[releases:] + ONE
    claimed = epsilon_of(1, NOISE, DELTA)
    proved = provable(without, with_it, DELTA)
    return AttackResult(
        MECHANISM,
        f"{releases:,} releases with a client and without",
        "local noise",
        "epsilon, at least",
        baseline=claimed,
        # What is proved is a lower end. An interval's upper end would be infinite.
        estimate=Score(proved, proved, proved, 0.0 if proved > claimed else 1.0),
        trials=2 * releases,
        note=f"noise of z = {NOISE:g} claims epsilon {claimed:.2f} at delta {DELTA:g}",
    )


def provable(without: Whole, with_it: Whole, delta: float) -> float:
    """An epsilon that a mechanism has at least if it is Gaussian, sure to 97.5 %.

    The first half of the releases chooses from which number on one counts as made with the client;
    the second half shows how often that is right, and how often wrong (Clopper and Pearson). What
    is claimed of Gaussian noise bounds every such pair of shares by one number, mu (Dong, Roth and
    Su 2022): a pair that needs a larger mu refutes the claim.
    """
    half = len(without) // 2
    pooled = np.concatenate([without[:half], with_it[:half]])
    limits = np.unique(np.quantile(pooled, np.linspace(0, 1, THRESHOLDS)))
    best = max(limits, key=lambda limit: _shift(without[:half], with_it[:half], float(limit)))
    mu = _shift(without[half:], with_it[half:], float(best))
    return epsilon_of(1, 1 / mu, delta) if mu > 0 else 0.0


def _shift(without: Whole, with_it: Whole, limit: float) -> float:
    """The least mu with which noise lets a limit be right, and wrong, as often as it is."""
    right, wrong = int((with_it >= limit).sum()), int((without >= limit).sum())
    # Half of the doubt on each side: both bounds hold together.
    least_right = beta.ppf(TAIL / 2, right, len(with_it) - right + 1) if right else 0.0
    is_always = wrong == len(without)
    most_wrong = 1.0 if is_always else beta.ppf(1 - TAIL / 2, wrong + 1, len(without) - wrong)
    return float(norm.ppf(least_right) - norm.ppf(most_wrong))
