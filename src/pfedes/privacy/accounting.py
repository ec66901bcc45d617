"""What releases with Gaussian noise cost a client, as (epsilon, delta).

A client's changes enter r sums. Without it each sum differs by at most the clip C, and the noise
on each has the standard deviation z C. All sums together tell as much as one number with unit
noise, shifted by mu = sqrt(r) / z: the exact privacy profile of the Gaussian mechanism (Balle and
Wang 2018; Dong, Roth and Su 2022). Only `math` is used, so that a budget does not depend on what
else is installed.
"""

import math
from collections.abc import Mapping

STEPS = 10_000
"""Noise is calibrated to a multiple of one over this."""

FAR = 30.0
"""Standard deviations from which on a tail is computed by its continued fraction."""


def epsilon_of(releases: int, noise: float, delta: float) -> float:
    """The loss of a client that is in so many releases, each with `noise` times the clip.

    Rounded up by less than a unit in the last place.
    """
    return epsilon_of_all({noise: releases}, delta)


def epsilon_of_all(releases: Mapping[float, int], delta: float) -> float:
    """The loss of a client that is in so many releases with each of several noises."""
    counted = {noise: count for noise, count in releases.items() if count}
    if not counted:
        return 0.0
    if 0 in counted:
        return math.inf
    mu = math.sqrt(math.fsum(count / noise**2 for noise, count in counted.items()))
    if delta_at(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if delta_at(middle, mu) > delta else (low, middle)
    return high


def epsilon_of_replacement(releases: int, noise: float, delta: float) -> float:
    """The same, where a client's data is replaced and not left out: a sum moves by twice C."""
    return epsilon_of(releases, noise / 2, delta)


def noise_for(epsilon: float, releases: int, delta: float) -> float:
    """The least noise, in steps of 0.0001, with which so many releases cost at most `epsilon`."""
    if releases == 0:
        return 0.0

    def is_enough(steps: int) -> bool:
        return epsilon_of(releases, steps / STEPS, delta) <= epsilon

    enough = 1
    while not is_enough(enough):
        enough *= 2
    too_little = enough // 2
    while enough - too_little > 1:
        middle = (enough + too_little) // 2
        enough, too_little = (middle, too_little) if is_enough(middle) else (enough, middle)
    return enough / STEPS


def delta_at(epsilon: float, mu: float) -> float:
    """The least delta for which a shift by `mu` under unit noise is (epsilon, delta)-private."""
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return math.exp(log_tail(near)) - math.exp(epsilon + log_tail(far))


def log_tail(x: float) -> float:
    """The logarithm of the probability that a standard normal number exceeds x."""
    if x < FAR:
        return math.log(math.erfc(x / math.sqrt(2)) / 2)
    fraction = x
    for term in range(60, 0, -1):
        fraction = x + term / fraction
    return -x * x / 2 - math.log(fraction) - math.log(2 * math.pi) / 2
