"""The commands as functions, for scripts and notebooks."""

import builtins
import csv
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pfedes
from conftest import SMALL
from notebooks import CellMethod, Screen, extractor_of_a_cell
from pages import SCRIPT
from pfedes.api.compare import Chosen
from pfedes.api.paper import campaign_of
from pfedes.cli import compare as compare_command
from pfedes.cli import paper as paper_command
from pfedes.cli import resume as resume_command
from pfedes.cli import run as run_command
from pfedes.errors import ConfigError
from pfedes.federation.loop import uniform
from pfedes.imports import is_of_this_program, name_of
from pfedes.methods.pfedes import PFedES, PFedESConfig
from pfedes.reproduction.scenario import COMPARED
from pfedes.results.table import Table
from running import hyper_parameters, result, small

ELSEWHERE = {"count", "json", "quiet", "plan"}
"""Options that say what a command prints."""


def quiet_run(place: Path, **options: Any) -> pfedes.Run:
    return pfedes.run(small(train__rounds=1), out=place, quiet=True, **options)


@pytest.mark.parametrize(
    ("function", "command"),
    [
        (pfedes.run, run_command.run),
        (pfedes.resume, resume_command.resume),
        (pfedes.compare, compare_command.compare),
        (pfedes.paper, paper_command.paper),
    ],
)
def test_functions_take_the_options_of_their_commands(function: Any, command: Any) -> None:
    ours, theirs = (set(inspect.signature(each).parameters) for each in (function, command))
    assert theirs - ours <= ELSEWHERE
    assert ours - theirs <= {"select", "listener"}


def test_a_run_from_python_is_that_of_the_command(tmp_path: Path) -> None:
    run = quiet_run(tmp_path / "run")
    assert result(run) == result(
        pfedes.Federation(small(train__rounds=1), out=tmp_path / "same").run()
    )
    more = pfedes.resume(tmp_path / "run", rounds=2, quiet=True)
    assert more.manifest.round == 2


def test_a_configuration_can_be_changed(tmp_path: Path) -> None:
    base = small("fedproto", method__lambda=2.0, train__rounds=7)
    assert pfedes.configure(base) == base
    changed = pfedes.configure(base, rounds=3, settings={"train.lr": 0.5})
    assert changed.method == base.method
    assert (changed.train.rounds, changed.train.lr) == (3, 0.5)
    assert pfedes.configure(base, method="fd").method.name == "fd"
    assert pfedes.configure(method=CellMethod).method.name == "cell_method"


def test_a_run_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = quiet_run(tmp_path / "<b>run")
    assert "pfedes on digits, 4 clients, round 1 of 1: accuracy" in repr(run)
    page = run._repr_html_()
    assert "<b>run" not in page
    assert "data:image/svg+xml;base64," in page
    assert f"{100 * run.summary['mean_accuracy']:.2f} %" in page
    frame = run.frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame["accuracy"].tolist() == [row["accuracy"] for row in run.rounds]
    assert run.frame("clients")["client"].tolist() == [row["client"] for row in run.clients]
    without_pandas(monkeypatch)
    assert run.frame() == run.rounds


def without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)


def test_a_notebook_shows_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch)
    run = pfedes.run(small(train__rounds=2), out=tmp_path / "run")
    accuracy = f"accuracy {100 * run.rounds[-1]['accuracy']:.2f} %"
    assert '<progress value="2" max="2">' in screen.shown[-1]
    assert accuracy in screen.shown[-1]
    assert str(tmp_path / "run") in screen.shown[-1]
    assert len(screen.shown) > 2
    quiet_run(tmp_path / "quiet")
    assert str(tmp_path / "quiet") not in "".join(screen.shown)


def test_names_are_text_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    from pfedes.api.bars import NotebookBars

    screen = Screen(monkeypatch)
    bars = NotebookBars()
    bars.say(SCRIPT)
    bars.bar(SCRIPT, 1, 2, SCRIPT, "")
    for number in range(40):
        bars.say(f"line {number}")
    bars.stop()
    assert "<script" not in screen.shown[-1]
    assert "line 39" in screen.shown[-1]
    assert "line 7<" not in screen.shown[-1]  # an output is stored in the notebook: it is bounded
    assert SCRIPT in repr(bars)
    assert "<script" not in Table([SCRIPT], [[SCRIPT]], [SCRIPT]).to_html()


def test_what_a_cell_defines_trains_in_this_process(tmp_path: Path) -> None:
    settings = {"data.limit": 60, "partition.clients": 2, "train.rounds": 1, "train.epochs": 1}
    run = pfedes.run(method=CellMethod, settings=settings, out=tmp_path / "run", quiet=True)
    assert run.config.runtime.fleet == "serial"
    assert "Mine &amp; only" in run._repr_html_()
    with pytest.raises(ConfigError, match="'cell_method' is defined in this program"):
        pfedes.run(method=CellMethod, settings={**settings, "runtime.fleet": "workers"}, quiet=True)


def test_an_extractor_and_a_selector_may_be_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extractor_of_a_cell, "__module__", "__main__")
    asked: list[str] = []

    def first(names: Sequence[str], count: int, rng: np.random.Generator) -> Sequence[str]:
        asked.extend(names[:1])
        return names[:1]

    extractor = {"method.extractor": extractor_of_a_cell}
    usual = {key: value for key, value in SMALL.items() if key != "runtime.fleet"}
    config = pfedes.configure(rounds=1, settings={**usual, **extractor})
    name = hyper_parameters(config, PFedESConfig).extractor
    assert is_of_this_program(name)
    assert PFedES(extractor=extractor_of_a_cell).config.extractor == name
    run = pfedes.run(config, out=tmp_path / "run", select=first, quiet=True)
    assert run.config.runtime.fleet == "serial"
    assert {row["client"] for row in run.clients} == set(asked)
    with pytest.raises(ConfigError, match=r"method.extractor = .* is defined in this program"):
        pfedes.run(config, settings={"runtime.fleet": "workers"}, quiet=True)


def test_functions_have_names() -> None:
    assert name_of(uniform) == "pfedes.federation.loop:uniform"
    first, second = (lambda shape: shape), (lambda shape: None)
    names = [name_of(first), name_of(second), name_of(first)]
    assert names[0] == names[2] != names[1]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> pfedes.Comparison:
    """Two methods of ours beside one of a cell, with figures."""
    config = small(data__limit=120, partition__clients=3, train__rounds=2, train__epochs=1)
    place = tmp_path_factory.mktemp("compared") / "all"
    methods: list[Chosen] = [CellMethod, "pfedes", "fedproto"]
    return pfedes.compare(config, methods=methods, out=place, figures=True, quiet=True)


def test_methods_are_compared_from_python(compared: pfedes.Comparison) -> None:
    assert list(compared.runs) == ["cell_method", "pfedes", "fedproto"]
    assert not compared.broken
    place = compared.directory
    records = json.loads((place / "compare.json").read_text())
    rows = list(csv.DictReader((place / "compare-numbers.csv").read_text().splitlines()))
    frame = compared.frame()
    for record, row, (_, line) in zip(records, rows, frame.iterrows(), strict=True):
        summary = json.loads((place / row["method"] / "seed-0/summary.json").read_text())
        assert float(row["mean_accuracy"]) == record["mean_accuracy"] == line["mean_accuracy"]
        assert float(row["mean_accuracy"]) == summary["mean_accuracy"]
        assert float(row["floats_up"]) == summary["floats_up"]
    assert "Mine & only" in (place / "compare.md").read_text()
    assert "cell_method" not in (place / "compare.md").read_text()
    assert "Mine &amp; only" in compared._repr_html_()
    assert compared.headline in repr(compared)


def test_a_comparison_is_not_run_twice(compared: pfedes.Comparison) -> None:
    config = small(data__limit=120, partition__clients=3, train__rounds=2, train__epochs=1)
    methods: list[Chosen] = [CellMethod(), "pfedes", "fedproto"]
    again = pfedes.compare(
        config, methods=methods, out=compared.directory, collect=True, quiet=True
    )
    assert again.records == compared.records


FIGURES = ("rounds", "floats", "flops")
STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize(
    "name", [*(f"accuracy-over-{what}" for what in FIGURES), "clients", "differences"]
)
def test_figures_are_files(compared: pfedes.Comparison, name: str) -> None:
    for kind, start in STARTS.items():
        path = compared.directory / "figures" / f"{name}.{kind}"
        assert path.read_bytes().startswith(start)
    drawn = (compared.directory / "figures" / f"{name}.svg").read_text()
    assert "Mine &amp; only" in drawn
    assert "fedproto" in drawn


def test_what_figures_show_is_what_was_measured(compared: pfedes.Comparison) -> None:
    figures = compared.figures()
    lines = {
        name: {str(line.get_label()): np.asarray(line.get_xydata()) for line in axes.lines}
        for name, figure in figures.items()
        for axes in figure.axes
    }
    (run,) = compared.runs["pfedes"]
    rows = run.rounds
    accuracies = [row["accuracy"] for row in rows]
    drawn = lines["accuracy-over-rounds"]["pfedes"]
    assert drawn[:, 1].tolist() == [run.manifest.initial_accuracy, *accuracies]
    spent: Mapping[str, list[float]] = {
        "floats": [row["floats_down"] + row["floats_up"] for row in rows],
        "flops": [row["flops"] for row in rows],
    }
    for what, each in spent.items():
        drawn = lines[f"accuracy-over-{what}"]["pfedes"]
        assert drawn[:, 0].tolist() == np.cumsum(each).tolist()
        assert drawn[:, 1].tolist() == accuracies
    gaps = {r["method"]: r["difference"] for r in compared.records if "difference" in r}
    assert compared.reference is not None
    assert set(gaps) == set(compared.runs) - {compared.reference.method}
    (axes,) = figures["differences"].axes
    dots: list[Any] = list(axes.containers)
    means = sorted(float(dot.lines[0].get_xdata()[0]) for dot in dots)
    assert means == pytest.approx(sorted(100 * gap["mean"] for gap in gaps.values()))


def test_objects_bring_their_hyper_parameters(tmp_path: Path) -> None:
    from pfedes.api.compare import named_methods
    from pfedes.methods.fedproto import FedProto
    from pfedes.sweep.compare import cells_of

    options: dict[str, Any] = {"lambda": 3.0}
    names, config = named_methods([FedProto(**options)], small("standalone"))
    (cell,) = cells_of(config, names, [0], tmp_path)
    assert cell.config.method.model_dump()["lambda"] == 3.0


def test_a_method_of_a_cell_is_a_row_of_the_papers_table(tmp_path: Path) -> None:
    """Six small runs take most of the time."""
    found = pfedes.paper(
        "table-heterogeneous", methods=[CellMethod], out=tmp_path / "paper", quiet=True
    )
    page = found["table-heterogeneous"]
    for name in ("smoke-digits", "smoke-generated"):
        (row,) = page.tables[name].rows
        assert row[0] == "Mine & only"
        numbers = [float(cell) for cell in row[2::3]]  # ours, beside the paper's and the difference
        assert all(0 <= number <= 100 for number in numbers)
        assert set(row[1::3]) == {"-"}  # the paper has no such method
    origin = page.files[0].read_text()
    assert "pfedes paper table-heterogeneous --scale smoke --methods cell_method" in origin
    assert "Mine &amp; only" in page._repr_html_()
    assert str(page.files[0]) in repr(page)


def test_only_experiments_that_compare_take_methods(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="models does not compare methods"):
        pfedes.paper("models", methods=["all", CellMethod], out=tmp_path / "p", quiet=True)
    with pytest.raises(ConfigError, match="'nobody'"):
        pfedes.paper("convergence", methods="all,nobody", out=tmp_path / "p", quiet=True)


def test_further_methods_stand_beside_those_of_the_paper(tmp_path: Path) -> None:
    work = campaign_of("convergence", "smoke", "all,fedgh", tmp_path, None, None)
    asked = {cell.config.method.name for cell in work.cells()}
    assert asked == {*COMPARED, "fedgh"}
    usual = campaign_of("convergence", "smoke", "all", tmp_path, None, None)
    assert {cell.config.method.name for cell in usual.cells()} == set(COMPARED)


def test_what_cannot_be_compared_is_refused_before_anything_runs(tmp_path: Path) -> None:
    for options in ({"methods": "nobody"}, {"seeds": "x"}, {"against": "fd", "methods": "fml"}):
        with pytest.raises(ConfigError):
            pfedes.compare(out=tmp_path / "o", quiet=True, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "o").exists()
