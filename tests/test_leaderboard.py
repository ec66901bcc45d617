"""The leaderboard, on runs made up by hand."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import pfedes
from notebooks import CellMethod
from pfedes.reproduction.experiment import Results
from pfedes.reproduction.experiments.leaderboard import SEVERAL, show, wanted
from pfedes.reproduction.experiments.tables import show as show_table
from pfedes.reproduction.record import Record
from pfedes.reproduction.scale import LAPTOP, SCALES, SMOKE
from pfedes.reproduction.scenario import DATA, LISTED, Setting
from records import record
from scales import TINY

CLIENTS = [0.5, 0.6, 0.7, 0.8]


class Several(Results):
    """Runs of CIFAR-10 by method and seed."""

    def __init__(self, runs: Mapping[tuple[str, int], Record]) -> None:
        super().__init__(SMOKE, Path())
        self._runs = runs

    def record(self, setting: Setting) -> Record | None:
        return self._runs.get((setting.method, setting.seed)) if setting.data == "cifar10" else None


def test_methods_are_ranked_and_paired_over_the_seeds_that_both_have() -> None:
    higher = [value + 0.1 for value in CLIENTS]
    runs = {
        ("standalone", 0): record(CLIENTS, 0),
        ("standalone", 1): record([value - 0.2 for value in CLIENTS], 1),
        ("fedgh", 0): record(higher, 0, flops_server=700),
        ("fml", 0): record([value - 0.1 for value in CLIENTS], 0),
        ("fedssa", 1): record(higher, 1),
    }
    table = show(Several(runs)).tables["cifar10"]
    shown = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(shown) == ["FedGH", "FedSSA", "Standalone", "FML"]
    fedgh = shown["FedGH"]
    assert fedgh["accuracy (%)"] == "75.00"
    assert fedgh["best selected (%)"] == "90.00"
    assert fedgh["against Standalone"] == "+10.00 [+10.00, +10.00]"  # seed 0 alone
    assert fedgh["verdict"] == "ahead"
    assert (fedgh["floats"], fedgh["FLOP"], fedgh["of which the server"]) == ("30", "1,000", "700")
    assert shown["FedSSA"]["against Standalone"] == "+30.00 [+30.00, +30.00]"  # seed 1 alone
    assert shown["FML"]["verdict"] == "behind"
    assert shown["Standalone"]["verdict"] == "reference"
    assert table.notes[0].startswith("not run yet: FedKD, LG-FedAvg")


def test_every_method_for_different_models_is_listed() -> None:
    settings = wanted(LAPTOP)
    assert {cell.method for cell in settings} == set(LISTED)
    assert len(settings) == len(set(settings)) == 2 * len(LISTED) + 2 * len(SEVERAL)


@pytest.mark.usefixtures("cells_here")
def test_one_command_sets_a_method_beside_the_finished_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that are in the archive nothing is trained."""
    monkeypatch.setitem(SCALES, "smoke", TINY)
    options: dict[str, Any] = {"archive": tmp_path / "kept", "jobs": 1, "quiet": True}
    pfedes.paper("leaderboard", methods=["standalone"], out=tmp_path / "first", **options)
    found = pfedes.paper(
        "leaderboard", methods=["standalone", CellMethod], out=tmp_path / "second", **options
    )
    trained = {path.parent.name for path in tmp_path.glob("second/cells/*/rounds.jsonl")}
    assert {name.partition("-")[0] for name in trained} == {"cell_method"}
    assert len(trained) == len(DATA)
    for table in found["leaderboard"].tables.values():
        shown = {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows}
        assert set(shown) == {"Standalone", "Mine & only"}
        # It shares nothing either, and was given the same clients, batches and initial weights.
        assert shown["Mine & only"]["against Standalone"] == "+0.00 [+0.00, +0.00]"
        assert shown["Mine & only"]["floats"] == "0"
    assert {path.name for path in tmp_path.glob("kept/cells/cell_method-*")} == trained


def test_the_paper_s_value_stands_beside_the_one_measured_by_its_rule() -> None:
    made = Several({(name, 0): record(CLIENTS, 0) for name in ("pfedes", "fedproto", "fml")})
    tables = show_table(made, homogeneous=False).tables
    table = tables["cifar10-selected"]
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["pFedES"]["N=100: paper"] == "92.72"
    assert rows["pFedES"]["N=100: by its rule"] == "90.00"
    assert rows["pFedES"]["N=100: difference"] == "-2.72"
    assert rows["pFedES"]["N=100: points apart"] == "within 3"
    assert rows["FD"]["N=100: points apart"] == ""
    # N = 10, 50, 100: pFedES 96.70, 95.79, 92.72; FedProto 96.51, 95.48, 92.49; FML 30.48, -, -.
    assert table.notes[1].endswith("within 1 in 0 cells, within 3 in 2 cells, further in 5 cells.")


def test_differences_are_to_the_best_baseline_or_to_the_method_asked_for() -> None:
    better = [value + 0.1 for value in CLIENTS]
    runs = {("pfedes", 0): record(better, 0), ("fd", 0): record(CLIENTS, 0)}
    runs["fml", 0] = record([value - 0.1 for value in CLIENTS], 0)
    made = Several(runs)
    table = show_table(made, homogeneous=False).tables["cifar10-differences"]
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["pFedES"]["N=50: against FD"] == "+10.00 [+10.00, +10.00]"
    assert rows["FD"]["N=50: verdict"] == "reference"
    assert rows["FML"]["N=50: verdict"] == "behind"
    made.against = "fml"
    table = show_table(made, homogeneous=False).tables["cifar10-differences"]
    assert "N=50: against FML" in table.columns
