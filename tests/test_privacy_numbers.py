"""Accounting, encoding and noise, by numbers that anybody can compute again."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfedes.errors import TrainingError
from pfedes.privacy.accounting import (
    delta_at,
    epsilon_of,
    epsilon_of_replacement,
    log_tail,
    noise_for,
)
from pfedes.privacy.config import PrivacyConfig
from pfedes.privacy.encoding import (
    ONE,
    change_of,
    decoded,
    digest_of,
    encoded,
    moved_by,
    squared_norm,
)
from pfedes.privacy.noise import NoiseStream, gaussian, stream_of_release, variance_of

ZEROS = bytes(32)


VECTORS = [  # releases, noise, delta; epsilon, the same for replaced data
    (1, 1, 1e-5, 4.377178, 9.9973),
    (10, 1, 1e-5, 17.856587, 46.2112),
    (10, 4, 1e-5, 3.341409, 7.5113),
    (50, 8, 1e-5, 3.796536, 8.5959),
    (100, 10, 1e-6, 4.886554, 10.9972),
]


@pytest.mark.parametrize(("releases", "noise", "delta", "epsilon", "replaced"), VECTORS)
def test_epsilon_is_the_gaussian_mechanisms_own(
    releases: int, noise: float, delta: float, epsilon: float, replaced: float
) -> None:
    assert epsilon_of(releases, noise, delta) == pytest.approx(epsilon, abs=1e-6)
    assert epsilon_of_replacement(releases, noise, delta) == pytest.approx(replaced, abs=1e-4)


@pytest.mark.repeat
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("releases", "noise", "delta"), [vector[:3] for vector in VECTORS])
def test_epsilon_agrees_with_the_accountant_of_opacus(
    releases: int, noise: float, delta: float
) -> None:
    """Its PRV accountant gives an upper bound that is 0.01 too high by construction."""
    from opacus.accountants import PRVAccountant  # seconds, for this test alone

    prv = PRVAccountant()
    prv.history = [(noise, 1.0, releases)]
    upper = prv.get_epsilon(delta)
    assert upper - 0.02 < epsilon_of(releases, noise, delta) < upper


@pytest.mark.parametrize(
    ("epsilon", "noise"), [(1, 11.7973), (2, 6.3050), (4, 3.4190), (8, 1.8981), (16, 1.0884)]
)
def test_noise_is_calibrated_to_the_last_step(epsilon: float, noise: float) -> None:
    assert noise_for(epsilon, 10, 1e-5) == noise
    assert epsilon_of(10, noise, 1e-5) <= epsilon < epsilon_of(10, noise - 1e-4, 1e-5)


@given(st.floats(0.05, 1000), st.integers(1, 10_000), st.sampled_from([1e-3, 1e-5, 1e-8]))
def test_calibrated_noise_never_exceeds_its_target(
    epsilon: float, releases: int, delta: float
) -> None:
    assert epsilon_of(releases, noise_for(epsilon, releases, delta), delta) <= epsilon


def test_epsilon_at_the_ends() -> None:
    assert epsilon_of(0, 1, 1e-5) == 0
    assert epsilon_of(1, 0, 1e-5) == math.inf
    assert epsilon_of(1, 1e6, 1e-5) == 0
    assert noise_for(1, 0, 1e-5) == 0
    # Noise of a thousandth: the loss is that of a shift by some thousand standard deviations.
    tiny = epsilon_of(10, 2**-10, 1e-5)
    mu = math.sqrt(10) * 2**10
    assert tiny == pytest.approx(mu**2 / 2 + mu * 4.2649, rel=1e-6)
    assert delta_at(tiny, mu) <= 1e-5


def test_the_tail_is_smooth_where_its_formula_changes() -> None:
    assert log_tail(30 - 1e-9) == pytest.approx(log_tail(30 + 1e-9), abs=1e-6)
    assert log_tail(0) == pytest.approx(math.log(0.5))
    assert log_tail(1e4) == pytest.approx(-5e7, rel=1e-6)


def test_noise_is_the_documented_stream() -> None:
    numbers = gaussian(2**48, 4, NoiseStream(ZEROS, b"vector"))
    assert numbers.tolist() == [-32741335, 15411241, -4379018, -10346724]


def test_noise_has_the_distribution_it_should() -> None:
    """Chi-square of 8,000 small numbers, whose probabilities are easily computed."""
    variance, count = 4, 8_000
    found = Counter(gaussian(variance, count, NoiseStream(ZEROS, b"chi-square")).tolist())
    weights = {y: math.exp(-y * y / (2 * variance)) for y in range(-40, 41)}
    whole = sum(weights.values())
    middle = range(-6, 7)
    rest = 1 - sum(weights[y] for y in middle) / whole
    cells = [(found[y], count * weights[y] / whole) for y in middle]
    cells.append((sum(n for y, n in found.items() if abs(y) > 6), count * rest))
    statistic = sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
    assert statistic < 29.1  # 13 degrees of freedom: exceeded by chance once in 150


def test_large_noise_passes_the_test_of_kolmogorov_and_smirnov() -> None:
    count = 2000
    numbers = np.sort(gaussian(variance_of(1.5), count, NoiseStream(ZEROS, b"ks"))) / (1.5 * ONE)
    expected = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in numbers])
    ranks = np.arange(count) / count
    distance = max(np.max(expected - ranks), np.max(ranks + 1 / count - expected))
    assert distance * math.sqrt(count) < 1.63  # exceeded by chance once in 100


def test_a_release_has_noise_of_its_own() -> None:
    def noise(key: bytes, run: str, round: int, inputs: str) -> list[int]:
        return list(gaussian(2**48, 3, stream_of_release(key, run, round, inputs)).tolist())

    first = noise(ZEROS, "run", 1, "a")
    assert first == noise(ZEROS, "run", 1, "a")
    others = [
        noise(b"\1" * 32, "run", 1, "a"),
        noise(ZEROS, "other", 1, "a"),
        noise(ZEROS, "run", 2, "a"),
        noise(ZEROS, "run", 1, "b"),
    ]
    assert not any(first == other for other in others)
    with pytest.raises(ValueError, match="32 bytes"):
        NoiseStream(b"short", b"")


def test_variance_is_rounded_up() -> None:
    assert variance_of(1) == 2**48
    assert variance_of(1, 3) == 2**48 // 3 + 1
    assert variance_of(0.1) == math.ceil(0.1**2 * 2**48)


def test_a_change_within_the_clip_only_loses_what_is_below_a_unit() -> None:
    change = np.array([0.25, -0.5, 2**-24, -(2**-25)])
    assert encoded(change, 1.0).tolist() == [2**22, -(2**23), 1, 0]
    assert encoded(change, 2.0).tolist() == [2**21, -(2**22), 0, 0]
    assert decoded(encoded(change, 1.0), 1.0).tolist() == [0.25, -0.5, 2**-24, 0]
    assert decoded(np.array([3 * ONE]), 0.5, divisor=2).tolist() == [0.75]


@given(
    st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=50),
    st.floats(1e-6, 1e6),
)
def test_no_change_is_longer_than_the_clip(numbers: list[float], clip: float) -> None:
    change = np.array(numbers)
    whole = encoded(change, clip)
    assert squared_norm(whole) <= ONE**2
    size = float(np.linalg.norm(change))
    if size > clip * 1.001:
        # Truncation takes less than one unit from each number.
        assert math.sqrt(squared_norm(whole)) >= ONE * (1 - 2**-19) - len(numbers)


def test_what_is_not_finite_is_not_clipped() -> None:
    with pytest.raises(TrainingError, match="not finite"):
        encoded(np.array([1.0, math.nan]), 1.0)


def test_changes_are_ordered_by_name_and_put_back_in_place() -> None:
    state = {"b": torch.tensor([[1.0, 2.0]]), "a": torch.tensor([3.0])}
    upload = {"a": torch.tensor([5.0]), "b": torch.tensor([[1.0, 3.0]])}
    change = change_of(upload, state)
    assert change.tolist() == [2, 0, 1]
    moved = moved_by(state, change)
    assert list(moved) == ["b", "a"]
    assert all(torch.equal(moved[name], upload[name]) for name in upload)
    assert moved["b"].dtype == torch.float32


def test_a_digest_names_whose_vectors_they_are() -> None:
    one, two = np.array([1, 2]), np.array([3])
    assert digest_of({"a": one, "b": two}) == digest_of({"b": two, "a": one})
    others = [{"a": two, "b": one}, {"a": one}, {"a": np.array([1, 2, 3]), "b": np.array([])}]
    assert digest_of({"a": one, "b": two}) not in map(digest_of, others)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"mode": "central"}, "set noise or epsilon"),
        ({"mode": "distributed", "noise": 1.0}, "set secure_sum"),
        ({"mode": "local", "noise": 1.0, "secure_sum": True}, "does without secure_sum"),
        ({"sampling": "poisson"}, "fixed"),
    ],
)
def test_settings_that_promise_nothing_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrivacyConfig(**keys)
