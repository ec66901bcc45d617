"""Averages that can be recomputed by hand."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from pfedes.aggregation import mean, weights_of


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
def test_the_mean_of_equal_things_is_that_thing(samples: list[int], seed: int) -> None:
    x = torch.randn(50, generator=torch.Generator().manual_seed(seed))
    result = mean([{"x": x}] * len(samples), weights_of(samples))
    assert torch.equal(result["x"], x)
