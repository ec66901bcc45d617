"""Comparisons: equal terms, complete tables, nothing run twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from commands import command
from pfedes import Config, Federation, StoreError, configure, open_run
from pfedes.errors import ConfigError
from pfedes.methods import METHODS
from pfedes.methods.fedkd import FedKDConfig
from pfedes.methods.fedproto import FedProtoConfig
from pfedes.methods.fml import FMLConfig
from pfedes.population.simulation import Simulation
from pfedes.results.table import Table
from pfedes.store.lock import locked
from pfedes.sweep.cells import Outcome
from pfedes.sweep.compare import Result, candidates, cells_of, results_of, table_of
from pfedes.sweep.execute import run_cells
from running import hyper_parameters, partitioned, result, small, timeless

PATIENCE = 240.0  # seconds for what takes some on an idle machine


def common(**settings: Any) -> Config:
    return small("standalone", train__participation=0.5, **settings)


def test_all_methods_meet_the_same_federation(tmp_path: Path) -> None:
    cells = cells_of(common(), list(METHODS), [3], tmp_path)
    simulations = [Simulation(cell.config) for cell in cells]
    first, *others = (partitioned(simulation.population) for simulation in simulations)
    for other in others:
        assert other.architectures == first.architectures
        for name in first.names:
            assert (other.shares[name].train == first.shares[name].train).all()
            assert (other.shares[name].test == first.shares[name].test).all()
            theirs = other.client(name).model.state_dict()
            for key, tensor in first.client(name).model.state_dict().items():
                assert tensor.equal(theirs[key])
    assert {cell.config.train for cell in cells} == {cells[0].config.train}


def test_all_methods_select_the_same_clients(tmp_path: Path) -> None:
    asked = []
    for name in ("standalone", "lg_fedavg", "fd"):
        cell = cells_of(common(), [name], [0], tmp_path)[0]
        run = Federation(cell.config, out=cell.directory).run()
        asked.append([(row["round"], row["client"]) for row in run.clients])
    assert asked[0] == asked[1] == asked[2]


def test_a_cell_is_an_ordinary_run(tmp_path: Path) -> None:
    (cell,) = cells_of(common(), ["lg_fedavg"], [5], tmp_path / "all")
    (outcome,) = run_cells([cell])
    assert outcome.run is not None
    assert cell.directory == tmp_path / "all" / "lg_fedavg" / "seed-5"
    alone = Federation(cell.config, out=tmp_path / "alone").run()
    assert result(open_run(cell.directory)) == result(alone)


@pytest.mark.usefixtures("cells_here")
def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    cells = cells_of(common(), ["standalone"], [0, 1], tmp_path)
    Federation(cells[0].config, out=cells[0].directory).run()
    manifest = next((cells[0].directory / "state" / "manifests").iterdir())
    before = manifest.stat().st_mtime_ns
    seen: list[int] = []
    outcomes = run_cells(cells, watch=lambda working, done: seen.append(len(working)))
    assert all(outcome.run is not None for outcome in outcomes)
    assert manifest.stat().st_mtime_ns == before
    assert max(seen) == 1
    elsewhere = cells_of(common(data__dir=str(tmp_path)), ["standalone"], [0], tmp_path)
    assert elsewhere[0].finished()  # wherever the data lie
    other = cells_of(common(train__lr=0.5), ["standalone"], [0], tmp_path)
    with pytest.raises(StoreError, match="holds a run with other settings"):
        run_cells(other)
    longer = cells_of(common(train__rounds=3), ["standalone"], [0], tmp_path)
    assert not longer[0].finished()
    (outcome,) = run_cells(longer)
    assert outcome.run is not None
    assert outcome.run.manifest.round == 3


@pytest.mark.usefixtures("cells_here")
def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        common().to_toml() + "[compare.fedproto]\nlambda = 2.0\n[compare.fml]\nalpha = [0.5, 1.0]\n"
    )
    words = (
        "c.toml",
        "--methods",
        "standalone,fedavg,fml,fedproto",
        "--seeds",
        "0,1",
        "--out",
        "o",
    )
    done = command("compare", *words)
    assert done.returncode == 0, done.stderr
    assert "fedavg/seed-0: client-" in done.stderr
    assert max(map(len, done.stdout.splitlines()[:12])) <= 80
    records = {row["method"]: row for row in json.loads((tmp_path / "o/compare.json").read_text())}
    assert list(records) == ["standalone", "fedavg", "fml", "fedproto"]
    assert "set models.pool to one architecture" in records["fedavg"]["reason"]
    assert records["fedproto"]["seeds"] == [0, 1]
    runs = [open_run(tmp_path / "o" / "fedproto" / f"seed-{seed}") for seed in (0, 1)]
    accuracies = [run.summary["mean_accuracy"] for run in runs]
    assert records["fedproto"]["mean_accuracy"] == pytest.approx(sum(accuracies) / 2)
    assert hyper_parameters(runs[0].config, FedProtoConfig).lambda_ == 2.0

    best = {}
    for alpha in ("0.5", "1.0"):
        found = [open_run(tmp_path / "o/fml" / f"alpha={alpha}" / f"seed-{s}") for s in (0, 1)]
        best[alpha] = sum(run.manifest.best_validation or 0 for run in found)
    assert records["fml"]["settings"] == {"alpha": float(max(best, key=lambda alpha: best[alpha]))}

    markdown = (tmp_path / "o/compare.md").read_text()
    assert markdown.startswith("| method | accuracy | over clients |")
    assert "fml: alpha = " in markdown
    assert r"\toprule" in (tmp_path / "o/compare.tex").read_text()
    assert len((tmp_path / "o/compare.csv").read_text().splitlines()) == 5

    again = command("compare", *words, "--json")
    assert {row["method"]: timeless(row) for row in json.loads(again.stdout)} == {
        name: timeless(row) for name, row in records.items()
    }


def test_interrupted_and_repeated(tmp_path: Path) -> None:
    """Three commands, each with the processes of its cells, take the time."""
    (tmp_path / "c.toml").write_text(common(train__rounds=6).to_toml())
    words = ["compare", "c.toml", "--methods", "standalone,lg_fedavg", "--out", "o"]
    for kind, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        process = subprocess.Popen(
            [sys.executable, "-m", "pfedes", *words], stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + PATIENCE
        while not list(tmp_path.glob("o/*/seed-0/state/manifests/0000[1-9].json")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(process.pid, kind)
        said = process.communicate()[1]
        assert process.returncode == code, said
        if code == 130:
            assert "the same command with --out o continues" in said
    deadline = time.monotonic() + 30
    while True:  # the cells of the killed process end with it: their locks are free at once
        try:
            for place in tmp_path.glob("o/*/seed-0"):
                with locked(open_run(place).store.state):
                    pass
            break
        except StoreError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    done = subprocess.run(
        [sys.executable, "-m", "pfedes", *words], capture_output=True, check=False
    )
    assert done.returncode == 0
    for name in ("standalone", "lg_fedavg"):
        (cell,) = cells_of(common(train__rounds=6), [name], [0], tmp_path / "straight")
        straight = Federation(cell.config, out=cell.directory).run()
        assert result(open_run(tmp_path / "o" / name / "seed-0")) == result(straight)


@pytest.mark.usefixtures("cells_here")
def test_wrong_comparisons(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[compare.fmll]\nalpha = 1.0\n")
    (tmp_path / "file").write_text("")
    for words, said in [
        (["--clients", "100000", "--methods", "fd,fml"], "partition.clients = 100000 is more than"),
        (["--methods", "fedavg"], "client-0001: its model is not cnn1"),
        (["--out", "file"], "file exists and is not a directory: choose another --out"),
        (["--set", "compare.fml.alpha=[]"], "compare.fml.alpha = []: a grid needs values"),
        (["--methods", "pfedes,fedprot"], "unknown method 'fedprot'; did you mean 'fedproto'?"),
        (["--seeds", "0,x"], "--seeds takes numbers separated by commas, found '0,x'"),
        (["c.toml"], "unknown method 'fmll'; did you mean 'fml'?"),
    ]:
        done = command("compare", *words)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith(f"pfedes: {said}")
        assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.toml", "file"]


@pytest.mark.usefixtures("cells_here")
def test_a_comparison_with_a_schedule_can_be_extended(tmp_path: Path) -> None:
    for rounds in (1, 2):
        cells = cells_of(common(train__rounds=rounds), ["fedkd"], [0], tmp_path)
        (outcome,) = run_cells(cells)
        assert outcome.run is not None
        assert outcome.run.manifest.round == rounds
        assert hyper_parameters(outcome.run.config, FedKDConfig).schedule_rounds == 1


@pytest.mark.usefixtures("cells_here")
def test_keys_of_one_method_are_set_aside_with_a_notice(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(common(train__rounds=1, seed=7).to_toml())
    done = command("compare", "c.toml", "--methods", "standalone", "--set", "method.name=pfedes",
                   "--set", "method.mu=0.4", "--out", "o", "--json")  # fmt: skip
    assert "ignored keys: [method] mu" in done.stderr
    assert json.loads(done.stdout)[0]["seeds"] == [7]


def test_a_grid_has_all_its_points() -> None:
    config = configure(settings={
        "compare.fml.alpha": [0.1, 0.9], "compare.fml.beta": [0.5, 0.6], "compare.fml.averaging":
        "uniform"})  # fmt: skip
    config = config.model_copy(
        update={"compare": {"fml": {**config.compare["fml"], "train.epochs": [1, 10]}}}
    )
    found = list(candidates(config, "fml"))
    assert len(found) == 8
    cells = cells_of(config, ["fml"], [0], Path("o"))
    assert str(cells[0].directory) == "o/fml/alpha=0.1,beta=0.5,train.epochs=1/seed-0"
    assert {cell.config.train.epochs for cell in cells} == {1, 10}
    assert {hyper_parameters(cell.config, FMLConfig).averaging for cell in cells} == {"uniform"}
    wrong = config.model_copy(update={"compare": {"fml": {"gamma": 1.0}}})
    with pytest.raises(ConfigError, match=r"unknown key 'method\.gamma'"):
        cells_of(wrong, ["fml"], [0], Path("o"))


def summary(seed: int, accuracy: float, reached: int | None) -> dict[str, Any]:
    until = {
        "round": reached,
        "floats": reached and 100 * reached,
        "flops": reached and 7 * reached,
    }
    return {
        "seed": seed,
        "rounds": 4,
        **dict.fromkeys(("std_accuracy", "best_accuracy", "last10_accuracy"), 0.25),
        **dict.fromkeys(("floats_down", "floats_up", "flops", "seconds"), 1000),
        "mean_accuracy": accuracy,
        "best_selected_accuracy": accuracy,
        "targets": [{"accuracy": 0.9, **until}],
    }


def test_the_table_by_hand() -> None:
    better = Result("b", {}, [summary(0, 0.90, 2), summary(1, 0.94, 4)], 0.9)
    worse = Result("w", {"x": 1}, [summary(0, 0.5, 2), summary(1, 0.5, None)], 0.9)
    none = Result("n", {}, [], None, "does not apply")
    table = table_of([none, worse, better], [0.9])
    assert [row[0] for row in table.rows] == ["b", "w", "n"]
    assert table.columns[4] == "last 4"
    assert table.rows[0][1] == "92.00 ± 2.83"
    assert table.rows[0][-3:] == ["3", "300", "21"]
    assert table.rows[1][-3:] == ["not reached", "-", "-"]
    assert set(table.rows[2][1:]) == {"-"}
    assert table.notes[:2] == ["n: does not apply", "w: x = 1, chosen by validation"]


def test_runs_without_validation_have_no_best_round() -> None:
    unjudged = {**summary(0, 0.5, 2), "best_accuracy": None}
    table = table_of([Result("m", {}, [unjudged, unjudged], None)], [0.9])
    assert dict(zip(table.columns, table.rows[0], strict=True))["best by val."] == "-"


def test_validation_chooses_not_the_test() -> None:
    class Fake:
        trained = True

        def __init__(self, validation: float, accuracy: float) -> None:
            self.manifest = type("M", (), {"best_validation": validation})
            self.summary = summary(0, accuracy, None)

    config = small("fml")
    cells = [
        cell
        for alpha in (0.1, 0.9)
        for cell in cells_of(
            config.model_copy(update={"compare": {"fml": {"alpha": [alpha]}}}), ["fml"], [0], Path()
        )
    ]
    runs: list[Any] = [Fake(0.8, 0.1), Fake(0.7, 0.9)]
    outcomes = [Outcome(cell, run) for cell, run in zip(cells, runs, strict=True)]
    (chosen,) = results_of(outcomes, ["fml"])
    assert chosen.point == {"alpha": 0.1}


def test_formats() -> None:
    table = Table(["a_b", "c"], [["x 1 %", "2 ± 3"]], ["note"])
    assert table.to_markdown() == "| a_b | c |\n| --- | ---: |\n| x 1 % | 2 ± 3 |\n\nnote\n"
    assert table.to_csv() == "a_b,c\nx 1 %,2 ± 3\n"
    assert table.to_latex() == "\n".join(
        [
            *(r"\begin{tabular}{lr}", r"\toprule", r"a\_b & c \\", r"\midrule"),
            *(r"x 1 \% & 2 $\pm$ 3 \\", r"\bottomrule", r"\end{tabular}", ""),
            *(r"\smallskip", r"\begin{minipage}{\linewidth}\footnotesize", "note"),
            *(r"\end{minipage}", ""),
        ]
    )


def test_columns_of_one_thing_stand_below_it_in_latex() -> None:
    table = Table(
        ["method", "N=10: ours", "N=10: gain", "N=50: ours", "remark"],
        [["FD", "80.1", "-1.2", "-", "so many words " * 4]],
    )
    assert table.to_latex().splitlines() == [
        *(r"\begin{tabular}{lrrrp{0.45\linewidth}}", r"\toprule"),
        r" & \multicolumn{2}{c}{N=10} & \multicolumn{1}{c}{N=50} &  \\",
        r"\cmidrule(lr){2-3} \cmidrule(lr){4-4}",
        *(r"method & ours & gain & ours & remark \\", r"\midrule"),
        r"FD & 80.1 & $-$1.2 & - & " + "so many words " * 4 + r" \\",
        *(r"\bottomrule", r"\end{tabular}"),
    ]
    assert Table(["a", "b"], []).to_latex().startswith(r"\begin{tabular}{ll}")


def test_what_a_format_would_take_for_its_own_is_escaped() -> None:
    table = Table(["a|b"], [["x^2 < ~{y}\\"]])
    assert table.to_markdown().startswith("| a\\|b |\n")
    assert r"x\^{}2 $<$ \~{}\{y\}\textbackslash{} \\" in table.to_latex()
