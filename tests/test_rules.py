"""What the rule of measuring adds, against numbers that can be worked out by hand."""

import itertools
from statistics import fmean

import pytest

from pfedes.reproduction.experiments.rules import expected_excess, spreads
from pfedes.reproduction.experiments.tables import closeness

CLIENTS = [0.2, 0.4, 0.6, 0.8]


def test_one_round_adds_nothing_and_all_clients_never_do() -> None:
    assert expected_excess(CLIENTS, 2, 1) == pytest.approx(0, abs=0.03)
    assert expected_excess(CLIENTS, 4, 50) == pytest.approx(0, abs=1e-12)


def test_the_largest_of_many_rounds_is_the_best_group() -> None:
    assert expected_excess(CLIENTS, 2, 500) == pytest.approx(0.7 - 0.5)


def test_two_rounds_are_the_mean_of_all_pairs_of_groups() -> None:
    groups = [fmean(group) for group in itertools.combinations(CLIENTS, 2)]
    exact = fmean(max(pair) for pair in itertools.product(groups, repeat=2)) - fmean(CLIENTS)
    assert expected_excess(CLIENTS, 2, 2) == pytest.approx(exact, abs=0.02)


def test_more_rounds_add_more_and_more_clients_less() -> None:
    assert spreads(10) == sorted(spreads(10))
    assert spreads(5)[-1] > spreads(10)[-1] > spreads(50)[-1] > 0


def test_distances_from_the_paper_are_rounded_as_printed() -> None:
    assert closeness(91.0, 92.0) == "within 1"
    assert closeness(92.004, 91.0) == "within 1"
    assert closeness(90.98, 91.99) == "within 3"
    assert closeness(88.0, 91.01) == "further"
    assert closeness(None, 91.0) == closeness(91.0, None) == ""
