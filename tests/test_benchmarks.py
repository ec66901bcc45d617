"""Two measurements side by side: what got slower is named, whichever way a figure points."""

import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"

ABOUT = {
    "begun": "2026-01-01 10:00",
    "commit": "0123",
    "processor": "one",
    "cores": 2,
    "torch_build": "2",
}


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delitem(sys.modules, "compare", raising=False)
    import compare as module

    return module


def measured(seconds: float, rate: float, faster: float) -> dict[str, Any]:
    figures = {
        "methods": [{"method": "pfedes", "seconds": seconds, "GFLOP/s": rate, "GFLOP": 7.0}],
        "precision": [{"work": "cnn1", "times faster": faster}],
    }
    return {"environment": ABOUT, "figures": figures}


def test_ratios_by_hand(compare: Any) -> None:
    old, new = measured(2.0, 10.0, 1.5), measured(3.0, 20.0, 1.0)
    found = {c.name: c.slowness for c in compare.changes(old["figures"], new["figures"])}
    assert found == {
        "methods / pfedes / seconds": pytest.approx(1.5),
        "methods / pfedes / GFLOP/s": pytest.approx(0.5),
        "precision / cnn1 / times faster": pytest.approx(1.5),
    }


def test_only_more_than_a_tenth_is_named(compare: Any) -> None:
    *_, verdict = compare.report(measured(1.0, 1.0, 1.0), measured(1.09, 1.0, 0.92))
    assert verdict == "0 of 3 figures got slower by more than 10 %"
    lines = list(compare.report(measured(1.0, 1.0, 1.0), measured(1.2, 1.0, 0.8)))
    assert lines[-3:] == [
        "2 of 3 figures got slower by more than 10 %",
        "  precision / cnn1 / times faster: 1 -> 0.8",
        "  methods / pfedes / seconds: 1 -> 1.2",
    ]


def test_other_machines_are_named(compare: Any) -> None:
    other = {**measured(1.0, 1.0, 1.0), "environment": {**ABOUT, "processor": "another"}}
    assert "The machines differ: compare ratios, not times." in list(
        compare.report(measured(1.0, 1.0, 1.0), other)
    )
    assert "The machines differ: compare ratios, not times." not in list(
        compare.report(measured(1.0, 1.0, 1.0), measured(1.0, 1.0, 1.0))
    )


def test_what_one_measurement_lacks_is_left_out(compare: Any) -> None:
    assert list(compare.changes({}, measured(1.0, 1.0, 1.0)["figures"])) == []
