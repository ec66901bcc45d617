"""Paired differences: by hand, against every possible resample, and against scipy."""

import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import bootstrap

from pfedes import Federation, StoreError
from pfedes.results.paired import Difference, difference
from pfedes.results.summary import best_selected
from pfedes.sweep.compare import Result, records_of, reference_of, table_of
from running import small


def test_equal_differences_give_an_interval_of_no_width() -> None:
    found = difference([[0.5, 0.75, 1.0]], [[0.25, 0.5, 0.75]])
    assert (found.mean, found.low, found.high) == (0.25, 0.25, 0.25)
    assert found.verdict == "ahead"
    assert difference([[0.25, 0.5]], [[0.5, 0.75]]).verdict == "behind"
    assert difference([[0.25, 0.5]], [[0.25, 0.5]]).verdict == "not decided"


def test_two_clients_by_hand() -> None:
    # The mean of two draws of {0, 1} is 0, 1/2, 1 with chances 1/4, 1/2, 1/4.
    found = difference([[0.0, 1.0]], [[0.0, 0.0]])
    assert (found.mean, found.low, found.high) == (0.5, 0.0, 1.0)
    assert found.verdict == "not decided"


def test_seeds_are_drawn_before_clients() -> None:
    # Within a seed all agree: what is left is which seeds are drawn, 1 and 1, 1 and 3, 3 and 3.
    ours, theirs = [[0.25] * 50, [0.75] * 20], [[0.0] * 50, [0.0] * 20]
    found = difference(ours, theirs)
    assert (found.mean, found.low, found.high) == (0.5, 0.25, 0.75)
    # Every seed has the same weight, however many clients it has.
    assert difference([[0.0] * 3, [1.0]], [[0.0] * 3, [0.0]]).mean == 0.5


def test_pairing_takes_out_what_differs_between_clients() -> None:
    easy_and_hard = [0.1 * number for number in range(10)]
    better = [value + 0.01 + 0.001 * (number % 2) for number, value in enumerate(easy_and_hard)]
    assert difference([better], [easy_and_hard]).verdict == "ahead"
    assert difference([better], [easy_and_hard[::-1]]).verdict == "not decided"


@pytest.mark.parametrize("gaps", [[0.1, -0.2, 0.4], [0.0, 0.05, 0.3, -0.1, 0.02]])
def test_against_every_resample(gaps: list[float]) -> None:
    every = [statistics.fmean(draw) for draw in itertools.product(gaps, repeat=len(gaps))]
    found = difference([gaps], [[0.0] * len(gaps)])
    # Where the exact distribution has steps, a quantile may fall on either side of one.
    below, above = (
        [np.quantile(every, share + shift, method="inverted_cdf") for shift in (-0.005, 0.005)]
        for share in (0.025, 0.975)
    )
    assert below[0] - 1e-12 <= found.low <= below[1] + 1e-12
    assert above[0] - 1e-12 <= found.high <= above[1] + 1e-12


def test_against_scipy() -> None:
    generator = np.random.default_rng(5)
    ours, theirs = generator.uniform(0.4, 1.0, (2, 100))
    found = difference([list(ours)], [list(theirs)])
    theirs_by = bootstrap(
        (ours - theirs,), np.mean, n_resamples=20_000, method="percentile", rng=1
    ).confidence_interval
    assert found.mean == pytest.approx(float(np.mean(ours - theirs)))
    assert found.low == pytest.approx(theirs_by.low, abs=0.002)
    assert found.high == pytest.approx(theirs_by.high, abs=0.002)


def test_equal_accuracies_give_equal_intervals_and_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(6)
    ours, theirs = generator.uniform(0, 1, (2, 40)).tolist()
    found = difference([ours], [theirs])
    assert difference([ours], [theirs]) == found
    monkeypatch.setattr("pfedes.results.paired.AT_A_TIME", 1000)  # in many parts: the same law
    parts = difference([ours], [theirs])
    assert parts.low == pytest.approx(found.low, abs=0.01)
    assert parts.high == pytest.approx(found.high, abs=0.01)


def test_what_cannot_be_paired() -> None:
    for ours, theirs in (([], []), ([[0.1]], []), ([[0.1, 0.2]], [[0.1]]), ([[]], [[]])):
        with pytest.raises(ValueError, match="cannot be paired"):
            difference(ours, theirs)


def test_in_words() -> None:
    assert str(Difference(0.0042, -0.001, 0.00951)) == "+0.42 [-0.10, +0.95]"


def summary(accuracies: list[float]) -> dict[str, Any]:
    return {
        "seed": 0,
        "rounds": 10,
        **dict.fromkeys(("std_accuracy", "best_accuracy", "last10_accuracy"), 0.25),
        **dict.fromkeys(("floats_down", "floats_up", "flops", "seconds"), 1000),
        "best_selected_accuracy": 0.75,
        "mean_accuracy": statistics.fmean(accuracies),
        "accuracies": accuracies,
        "targets": [],
    }


def test_the_reference_is_the_best_baseline_or_the_one_asked_for() -> None:
    results = [
        Result("pfedes", {}, [summary([0.75, 1.0])], 0.9),
        Result("standalone", {}, [summary([0.25, 0.5])], 0.9),
        Result("fd", {}, [summary([0.5, 0.5])], 0.9),
        Result("fml", {}, [], None, "does not apply"),
    ]
    best = reference_of(results)
    assert best is not None
    assert best.method == "fd"  # pFedES is better, but is no baseline of itself
    table = table_of(results, [], best)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["pfedes"]["against fd"] == "+37.50 [+25.00, +50.00]"
    assert rows["pfedes"]["verdict"] == "ahead"
    assert rows["standalone"]["verdict"] == "not decided"
    assert rows["fd"]["verdict"] == "reference"
    assert rows["fml"]["verdict"] == "-"
    assert rows["pfedes"]["best selected"] == "75.00"
    asked = reference_of(results, "standalone")
    records = {record["method"]: record for record in records_of(results, asked)}
    assert records["pfedes"]["difference"] == {
        "against": "standalone",
        "mean": 0.5,
        "low": 0.5,
        "high": 0.5,
        "verdict": "ahead",
    }
    assert "difference" not in records["standalone"]
    assert "difference" not in records["fml"]
    json.dumps(list(records.values()))
    # Nothing to compare with: no column.
    assert reference_of(results[:1]) is None
    assert reference_of(results, "fml") is None
    assert "verdict" not in table_of(results[:1], [], None).columns


def test_runs_are_compared_client_by_client(tmp_path: Path) -> None:
    fast: dict[str, Any] = {"train__rounds": 1, "runtime__report": False}
    ours = Federation(small(**fast), out=tmp_path / "a").run()
    alone = Federation(small("standalone", **fast), out=tmp_path / "b").run()
    mine, theirs = (run.summary["accuracies"] for run in (ours, alone))
    assert ours.difference(alone) == difference([mine], [theirs])
    other = Federation(small("standalone", seed=1, **fast), out=tmp_path / "c").run()
    with pytest.raises(StoreError, match="do not have the same clients"):
        ours.difference(other)


def row(round: int, accuracy: float | None, status: str = "ok") -> dict[str, Any]:
    return {"round": round, "accuracy": accuracy, "status": status}


def test_the_authors_rule_by_hand() -> None:
    rounds: list[dict[str, Any]] = [{"round": number, "status": "ok"} for number in (1, 2, 3)]
    clients = [
        *(row(1, 0.5), row(1, 0.75)),  # 0.625
        *(row(2, 0.75), row(2, None, "rejected"), row(2, 1.0)),  # 0.875: who failed has no accuracy
        *(row(3, 1.0), row(3, 0.75)),  # as good, and later
    ]
    assert best_selected(rounds, clients) == (2, 0.875)
    # A round that failed left no model behind.
    failed = [rounds[0], {"round": 2, "status": "failed"}]
    assert best_selected(failed, clients) == (1, 0.625)
    assert best_selected([], []) == (None, None)
