"""Averages that can be recomputed by hand, and rules that liars cannot move far."""

import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pfedes import ConfigError, Federation, MethodError, PFedES
from pfedes.core.aggregation import AggregationConfig, combine, krum, mean, norm, weights_of
from pfedes.methods import METHODS
from pfedes.population.simulation import Simulation
from running import small


def test_weights_are_shares_of_those_who_answered() -> None:
    assert weights_of([1, 3]) == [0.25, 0.75]


def test_mean_by_hand() -> None:
    result = mean([{"x": torch.tensor([0.0, 8.0])}, {"x": torch.tensor([4.0, 0.0])}], [0.25, 0.75])
    assert result["x"].tolist() == [3.0, 2.0]
    assert result["x"].dtype == torch.float32


def test_whole_numbers_stay_whole() -> None:
    result = mean([{"steps": torch.tensor(2)}, {"steps": torch.tensor(5)}], [0.5, 0.5])
    assert result["steps"].dtype == torch.int64
    assert result["steps"].item() == 4


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=30), st.integers(0, 2**31))
def test_the_mean_of_equal_uploads_is_that_upload(samples: list[int], seed: int) -> None:
    x = torch.randn(50, generator=torch.Generator().manual_seed(seed))
    result = mean([{"x": x}] * len(samples), weights_of(samples))
    assert torch.equal(result["x"], x)


def uploads(*rows: list[float]) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.tensor(row)} for row in rows]


def combined(rows: list[dict[str, torch.Tensor]], **config: object) -> list[float]:
    weights = weights_of(range(1, len(rows) + 1))
    found = combine(rows, weights, AggregationConfig.model_validate(config))["x"]
    assert found.dtype == torch.float32
    return found.tolist()


def test_the_median_by_hand() -> None:
    odd = uploads([1.0, 9.0], [2.0, -50.0], [900.0, 8.0])
    assert combined(odd, kind="median") == [2.0, 8.0]
    even = uploads([1.0, 9.0], [2.0, 7.0], [3.0, 8.0], [900.0, -50.0])
    assert combined(even, kind="median") == [2.5, 7.5]
    assert combined(odd[:1], kind="median") == [1.0, 9.0]


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=12))
def test_the_median_is_the_median(numbers: list[float]) -> None:
    (found,) = combined(uploads(*[[number] for number in numbers]), kind="median")
    assert found == pytest.approx(statistics.median(numbers), rel=1e-6)


def test_the_trimmed_mean_by_hand() -> None:
    rows = uploads([0.0], [1.0], [2.0], [3.0], [1e9])
    assert combined(rows, kind="trimmed_mean", trim=0.2) == [2.0]
    assert combined(rows, kind="trimmed_mean", trim=0.4) == [2.0]
    assert combined(rows[1:], kind="trimmed_mean", trim=0.1) == [2.5]  # 0.4 of an upload: one
    assert combined(rows[:2], kind="trimmed_mean", trim=0.4) == [0.5]  # nothing would be left
    assert combined(rows[:3], kind="trimmed_mean", trim=0.0) == [1.0]


def test_krum_by_hand() -> None:
    # One liar of five: each is scored by its two nearest others. Squared distances on a line:
    # 0: 1 + 4; 1: 1 + 1; 2: 1 + 1; 3: 1 + 4; 100: 97^2 + 98^2. Of the best two, the first.
    rows = uploads([0.0], [1.0], [2.0], [3.0], [100.0])
    assert krum(rows, byzantine=1) == 1
    assert combined(rows, kind="krum", byzantine=1) == [1.0]
    # By one nearest it would be the first of these, by three nearest the third.
    assert krum(uploads([0.0], [1.0], [2.0], [4.0], [5.0]), byzantine=1) == 1
    # Two liars that agree are still two against five.
    assert krum(uploads([50.0], [50.0], [0.0], [0.1], [0.3], [0.4], [0.2]), byzantine=2) == 6


def test_krum_measures_over_all_tensors_but_not_counters() -> None:
    def upload(a: float, b: float, steps: int) -> dict[str, torch.Tensor]:
        return {"a": torch.tensor([a]), "b": torch.tensor([[b]]), "steps": torch.tensor(steps)}

    rows = [upload(0.0, 9.0, 1), upload(0.0, 0.0, 10**6), upload(0.0, 0.1, 3), upload(9.0, 0.0, 2)]
    assert krum(rows, byzantine=1) == 1


def test_the_norm_by_hand() -> None:
    assert norm({"a": torch.tensor([3.0]), "b": torch.tensor([[4.0]]), "n": torch.tensor(7)}) == 5.0


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("key", ["kind", "max_norm"])
def test_only_methods_that_average_parameters_take_other_rules(name: str, key: str) -> None:
    value = "median" if key == "kind" else 1.0
    pool = {"models__pool": ["cnn5"], f"aggregation__{key}": value}
    if name in {"fd", "fedproto", "standalone", "fedssa", "fedgh", "fedre", "fedtgp"}:
        with pytest.raises(MethodError, match=f"{name} averages no parameters"):
            Simulation(small(name, **pool))
    else:
        Simulation(small(name, **pool))


def test_nothing_shared_is_nothing_to_average() -> None:
    with pytest.raises(MethodError, match="averages no parameters"):
        Simulation(small(PFedES(sharing="local"), aggregation__kind="krum"))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"train__min_uploads": 5}, "min_uploads = 5, but a round selects 4 of 4 clients"),
        (
            {"aggregation__kind": "krum", "aggregation__byzantine": 1},
            "'krum' with byzantine = 1 needs 5 uploads, but a round selects 4 of 4 clients",
        ),
        (
            {"aggregation__kind": "median", "train__participation": 0.5},
            "'median' needs 3 uploads, but a round selects 2 of 4 clients",
        ),
    ],
)
def test_more_uploads_than_a_round_asks_for_are_refused_before_it(
    settings: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=why):
        Federation(small(**settings), out=tmp_path / "run").run()
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_cannot_ask_for_more_than_its_clients(tmp_path: Path) -> None:
    Federation(small(train__rounds=1), out=tmp_path / "run").run()
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace("min_uploads = 1", "min_uploads = 5"))
    with pytest.raises(ConfigError, match="a round selects 4 of 4 clients"):
        Federation.resume(tmp_path / "run", rounds=2)


@pytest.mark.parametrize(
    ("rule", "fewest"),
    [
        ({"kind": "mean"}, 1),
        ({"kind": "median"}, 3),
        ({"kind": "trimmed_mean"}, 3),
        ({"kind": "trimmed_mean", "trim": 0.0}, 1),
        ({"kind": "krum"}, 3),
        ({"kind": "krum", "byzantine": 2}, 7),
    ],
)
def test_robust_rules_need_enough_uploads(rule: dict[str, Any], fewest: int) -> None:
    """Of two uploads median and trimmed mean are the mean: a round of two has failed."""
    assert AggregationConfig(**rule).fewest == fewest
