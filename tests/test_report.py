"""What the pages say: right for every method, bounded, and safe to show."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pages import SCRIPT, SECTIONS, Page
from pfedes import Client, Context, FedAvg, Federation, Payload, Run, Upload, configure, open_run
from pfedes.cli import execute
from pfedes.data import sources
from pfedes.errors import DataError
from pfedes.federation.listener import Listener
from pfedes.formatting import between, counted, listed, measured, percent
from pfedes.methods import METHODS
from pfedes.population.simulation import Simulation
from pfedes.report.comparison import render_comparison
from pfedes.report.enhanced import enhanced_figure, enhanced_pairs
from pfedes.report.figures import (
    PALETTE,
    distinct_styles,
    distribution_figure,
    method_style,
    partition_figure,
)
from pfedes.report.holdings import held_by, holdings_of
from pfedes.report.output import publish_results, result_files
from pfedes.report.page import render
from pfedes.report.svg import inline_svg
from pfedes.report.wire import wire_report
from pfedes.store.run_store import RunStore
from running import contents, failing, flipped, small, tiny, truncated


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report") / "run"
    Federation(small(runtime__report=True), out=place).run()
    return place


@pytest.fixture(scope="module")
def page(finished: Path) -> Page:
    return Page((finished / "report.html").read_text())


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_all_sections_are_there_in_order(page: Page) -> None:
    assert [text for level, text in page.headings if level == "h2"] == SECTIONS
    assert page.headings[0] == ("h1", "run")
    levels = [int(level[1]) for level, _ in page.headings]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("main") == page.tags.count("nav") == page.tags.count("header") == 1


def test_the_numbers_are_those_of_the_run(page: Page, finished: Path) -> None:
    run = open_run(finished)
    summary = run.summary
    mean = f"{100 * summary['mean_accuracy']:.2f} %"
    assert mean in page.text
    clients = page.table("Clients, worst-off first")
    by_accuracy = sorted(
        run.manifest.scores, key=lambda name: (run.manifest.scores[name].accuracy, name)
    )
    assert clients.column("client") == by_accuracy
    assert clients.column("floats sent") == ["886"] * 4
    assert clients.column("rounds") == ["2"] * 4
    assert set(clients.column("model")) <= {"cnn4", "cnn5"}
    worst = run.manifest.scores[by_accuracy[0]]
    assert clients.rows[0][2] == f"{worst.test_correct} of {worst.test_total}"
    rounds = page.table("Costs of each round")
    assert rounds.column("round") == ["1", "2"]
    assert rounds.column("floats up") == ["1,772"] * 2
    assert rounds.column("accuracy")[-1] == mean
    assert "3,544 floats (14,176 B)" in page.text
    held = page.table("Samples of each client")
    assert held.column("classes") == ["3"] * 4
    assert sum(int(n) for n in held.column("train")) == sum(row["n"] for row in run.clients) / 2


def test_pictures_are_described(page: Page, finished: Path) -> None:
    initial = percent(open_run(finished).manifest.initial_accuracy)
    accuracy, distribution, classes, partition, enhanced = page.pictures
    assert initial in accuracy
    assert "Histogram" in distribution
    assert "were classified correctly" in classes
    assert "table below" in partition
    assert "classes 0, 2, 4, 7, 9" in enhanced
    html = (finished / "report.html").read_text()
    assert html.count("<svg") == 5
    assert html.count("data:image/png") == 1
    assert "currentColor" in html
    assert "var(--blue)" in html


def test_it_can_be_repeated(page: Page, finished: Path) -> None:
    assert f"pfedes run {finished}/config.toml" in page.text
    assert (finished / "config.toml").read_text() in (finished / "report.html").read_text().replace(
        "&#34;", '"'
    )


def test_the_same_run_gives_the_same_page(finished: Path) -> None:
    assert render(open_run(finished)) == render(open_run(finished))


def test_nothing_went_wrong(page: Page) -> None:
    assert "None: 8 tasks" in page.text


def left(method: str, place: Path, **settings: Any) -> Any:
    run = Federation(tiny(method, **settings), out=place).run()
    return wire_report(run, run.simulation), Page((place / "report.html").read_text())


def test_what_left_pfedes(tmp_path: Path) -> None:
    wire, page = left("pfedes", tmp_path / "run")
    (kind,) = wire.kinds
    assert [t.name for t in kind.up.tensors] == [
        *("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias")
    ]
    assert [t.numbers for t in kind.up.tensors] == ["216", "8", "216", "3"]
    assert kind.up.numbers == kind.down.numbers == wire.counted.floats_up == "443"
    assert dict(kind.up.meta)["zeros"] == "float from 0 to 1"
    assert {"loss", "samples", "state"} <= dict(kind.up.meta).keys()
    assert dict(kind.down.meta).keys() == {"run", "client", "round", "base", "download"}
    (private,) = wire.private
    assert (private.left, private.numbers_left) == ((), 0)
    assert private.numbers_stayed == 670_058
    assert page.table("Private models").rows == [
        ["cnn5", "2", "670,058", "670,058", "nothing", "client-0000, round 1"]
    ]
    assert "which architecture it has" in wire.not_on_card
    assert page.table("What a client sends").column("shape and type")[0] == "8 x 3 x 3 x 3 float32"


def test_what_left_fedavg_is_everything(tmp_path: Path) -> None:
    wire, page = left("fedavg", tmp_path / "run")
    (private,) = wire.private
    assert private.numbers_left == private.numbers == 670_058
    assert wire.counted.floats_up == "670,058"
    assert page.table("Private models").column("sent verbatim") == ["all of it"]
    assert "names, types and shapes of its model's tensors" in wire.on_card
    assert "which architecture it has" not in wire.not_on_card
    assert "Enhanced images" not in page.text


class Doubled(FedAvg):
    """Sends twice its model: no tensor leaves as it is, and everything does."""

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        upload = super().client_round(client, download, ctx)
        return Upload(upload.loss, {name: 2 * tensor for name, tensor in upload.tensors.items()})


def test_changed_tensors_that_were_sent_are_not_called_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "fedavg", Doubled)
    wire, page = left("fedavg", tmp_path / "run")
    assert wire.counted.floats_up == "670,058"
    assert "each answer with 670,058 floats" in page.text
    assert "never left" not in page.text
    assert "does not find a tensor that was changed" in page.text
    card = export_card(tmp_path / "run")
    assert "it answered 1 round with 670,058 numbers" in card.lower()
    assert "does not find numbers that were" in card


def export_card(run: Path) -> str:
    assert execute(["export", str(run), "--client", "client-0000", "--out", f"{run}-out"]) == 0
    return Path(f"{run}-out", "README.md").read_text()


def test_what_left_lg_fedavg_is_the_head(tmp_path: Path) -> None:
    wire, _ = left("lg_fedavg", tmp_path / "run")
    (private,) = wire.private
    assert private.left == ("fc3.bias", "fc3.weight")
    assert private.numbers_left == 5_010


def test_what_left_fedkd_has_forms_to_choose_from(tmp_path: Path) -> None:
    wire, page = left("fedkd", tmp_path / "run")
    (kind,) = wire.kinds
    forms = {tensor.name: tensor for tensor in kind.up.tensors}
    assert not forms["update/fc1.weight"].instead
    assert forms["update/fc1.weight/factors"].instead
    assert forms["update/fc1.weight/factors"].shape == "up to 500 x 1301 float32"
    assert forms["update/fc1.weight/factors"].numbers == "up to 650,500"
    assert kind.up.least == 16 + 32 + 500 + 500 + 10
    assert "or update/fc1.weight/factors" in page.table("What a client sends").column("tensor")
    (private,) = wire.private
    assert private.left == ()
    assert "w_h" in private.kept


def test_what_left_standalone_is_no_tensor(tmp_path: Path) -> None:
    wire, page = left("standalone", tmp_path / "run")
    (kind,) = wire.kinds
    assert kind.up.tensors == kind.down.tensors == ()
    assert kind.up.numbers == wire.counted.floats_up == "0"
    assert "No tensor." in page.text
    assert "loss" in dict(kind.up.meta)
    assert "Enhanced images" not in page.text


def test_what_left_fd_follows_the_classes(tmp_path: Path) -> None:
    settings = {"partition__kind": "dirichlet", "partition__clients": 4, "partition__alpha": 0.3}
    wire, page = left("fd", tmp_path / "run", **settings)
    assert len(wire.kinds) > 1
    assert sum(kind.clients for kind in wire.kinds) + wire.other_clients == 4
    for kind in wire.kinds:
        rows, _, columns = kind.up.tensors[0].shape.partition(" x ")
        assert columns == "10 float32"
        assert kind.up.most == 10 * int(rows)
        assert "labels" in dict(kind.up.meta)
    assert "its classes, with the number of training samples of each" in wire.on_card
    assert "such as client-" in page.text


def test_enhanced_images(finished: Path) -> None:
    run = open_run(finished)
    pairs = enhanced_pairs(run, count=3)
    assert pairs is not None
    assert pairs.classes == ("0", "4", "9")
    assert pairs.round == 2
    population = run.simulation.population
    found = population.pictures(3)
    assert found is not None
    pixels, labels = found
    assert labels.tolist() == [0, 4, 9]
    assert np.allclose(pairs.originals, pixels / 255)
    theta = run.store.server_state(run.manifest).tensors
    x = population.normaliser(torch.from_numpy(pixels))
    hidden = torch.conv2d(x, theta["conv1.weight"], theta["conv1.bias"], padding=1).relu()
    out = torch.conv2d(hidden, theta["conv2.weight"], theta["conv2.bias"], padding=1).relu()
    expected = out.permute(0, 2, 3, 1).numpy()
    low, high = (f(expected, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
    assert np.allclose(pairs.enhanced, (expected - low) / (high - low), atol=1e-4)
    assert pairs.zeros == pytest.approx((expected == 0).mean(), abs=1e-3)
    (axes,) = enhanced_figure(pairs).axes
    shown = axes.get_images()[0].get_array()
    assert shown is not None
    assert shown.shape == (2 * 32 + 2, 3 * 32 + 2 * 2, 4)


def test_no_enhanced_images_where_no_extractor_is_shared(tmp_path: Path) -> None:
    run = Federation(tiny("pfedes", method__sharing="local"), out=tmp_path / "run").run()
    assert enhanced_pairs(run) is None
    page = Page((tmp_path / "run" / "report.html").read_text())
    assert "Enhanced images" not in page.text
    assert "No tensor." in page.text
    assert "kept beside the model and not sent: conv1.bias, conv1.weight" in page.text


def test_hostile_words_stay_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, f"{SCRIPT} \"'><svg onload=alert(1)>")
    place = tmp_path / "<img src=x onerror=alert(1)>"
    Federation(tiny("pfedes"), out=place).run()
    assert execute(["report", str(place), str(place.parent / "." / place.name)]) == 0
    html = (place / "report.html").read_text()
    page = Page(html)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert SCRIPT not in html
    trouble = page.table("Rejected uploads and failed clients")
    assert trouble.rows == [
        ["client-0001", "1", "client failed", f"{SCRIPT} \"'><svg onload=alert(1)>"]
    ]
    assert page.headings[0] == ("h1", "<img src=x onerror=alert(1)>")
    assert "'<img src=x onerror=alert(1)>/config.toml'" in page.text.replace(
        str(tmp_path) + "/", ""
    )


@pytest.mark.parametrize("name", ["ill", "in need of an operation"])
def test_few_participants_have_their_names_and_a_whole_title(name: str) -> None:
    counts = np.array([[12, 0], [3, 12_000]])
    figure = partition_figure(counts, [name, "well"], ["north", "south"])
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["north", "south"]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # only then everything has its place
    (text,) = (each for each in (*figure.texts, axes.title) if each.get_text())
    title = text.get_window_extent(canvas.get_renderer())
    assert figure.bbox.x0 <= title.x0 < title.x1 <= figure.bbox.x1


def test_a_mean_over_fewer_than_ten_rounds_says_how_many(page: Page) -> None:
    assert "mean of the last 2 rounds" in page.text
    assert "last 10" not in page.text


@pytest.mark.parametrize(("value", "shown"), [(0, "0 FLOP"), (177_200, "177,200 FLOP")])
def test_a_number_stands_apart_from_its_unit(value: int, shown: str) -> None:
    assert measured(value, "FLOP") == shown


def test_hostile_class_names_are_no_formulas(finished: Path) -> None:
    population = open_run(finished).simulation.population
    counts = np.array([held_by(population, name) for name in population.names])
    names = ["$\\frac{", SCRIPT, "$x_y$", "&amp;", *"abcdef"]
    svg = inline_svg(partition_figure(counts, names), "p")
    assert SCRIPT not in svg
    assert "&lt;script&gt;" in svg
    assert "$\\frac{" in svg


def test_a_directory_whose_name_is_no_text(copy: Path) -> None:
    place = copy.rename(copy.with_name(os.fsdecode(b"\xff")))
    page = Page(result_files(open_run(place))["report.html"].decode())
    assert page.headings[0] == ("h1", "?")


def test_figures_meet_on_a_page_without_clashing() -> None:
    first, second = (inline_svg(distribution_figure([0.2, 0.9]), name) for name in ("a", "b"))
    assert not {*Page(first).ids} & {*Page(second).ids}
    assert "<metadata" not in first
    assert "font-family" not in first


def test_many_clients_make_no_long_page(tmp_path: Path) -> None:
    config = configure(
        clients=120,
        participation=0.02,
        data="synthetic:samples=1500,size=16,channels=1",
        settings={
            "models.pool": ["cnn5"],
            "train.rounds": 1,
            "train.epochs": 1,
            "method.extractor_epochs": 1,
            "runtime.fleet": "serial",
        },
    )
    Federation(config, out=tmp_path / "run").run()
    html = (tmp_path / "run" / "report.html").read_text()
    page = Page(html)
    assert len(page.table("Clients, worst-off first").rows) == 50
    assert "50 of 120 clients, the worst-off; all are in summary.json" in page.text
    assert len(page.table("Samples of each client").rows) == 50
    assert "of 120 clients. Shown are the first 50." in page.text
    assert len(html) < 300_000


def test_many_classes_and_clients_make_no_large_picture() -> None:
    settings = {"partition.kind": "dirichlet", "partition.clients": 200}
    data = "synthetic:samples=20000,size=16,channels=1,classes=100"
    simulation = Simulation(configure(data=data, settings=settings))
    holdings = holdings_of(simulation)
    assert (holdings.clients, holdings.shown, len(holdings.grid.rows)) == (200, 50, 50)
    svg = inline_svg(holdings.figure, "p")
    assert svg.count("data:image/png") == 1
    assert len(svg) < 250_000


@pytest.mark.parametrize("file", ["server", "client"])
@pytest.mark.parametrize("damage", [truncated, flipped])
def test_damage_is_one_line(
    file: str, damage: Callable[[Path], None], copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of each architecture one client is looked at: that no damaged one is missed, damage all.
    places = {
        "server": [copy / "state" / "server" / "00002.safetensors"],
        "client": [*copy.glob("state/clients/*/*/00002.safetensors")],
    }
    for path in places[file]:
        damage(path)
    before = contents(copy)
    assert execute(["report", str(copy)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pfedes: ")
    assert "00002.safetensors is damaged" in line
    assert "round 1 is intact" in line
    assert contents(copy) == before


def test_a_run_that_has_moved_on(copy: Path) -> None:
    """What was opened before is written, though its files are gone by now."""
    path = copy / "config.toml"
    path.write_text(path.read_text().replace("keep_rounds = 2", "keep_rounds = 1"))
    opened = open_run(copy)
    Federation.resume(copy, rounds=4).run()
    assert not (copy / "state" / opened.manifest.server).exists()
    page = Page(result_files(opened)["report.html"].decode())
    assert page.table("Costs of each round").column("round") == ["1", "2"]
    assert "extractor after round 4" in page.text


def test_a_report_of_a_run_that_finishes_meanwhile_is_final(tmp_path: Path) -> None:
    """The run is opened after round 1; before its results are written, it ends."""
    federation = Federation(small(train__rounds=2, runtime__report=False), out=tmp_path / "run")
    opened: list[tuple[Run, dict[str, bytes]]] = []

    class AfterRoundOne(Listener):
        def round_done(self, row: dict[str, Any]) -> None:
            if row["round"] == 1:
                run = open_run(tmp_path / "run")
                opened.append((run, result_files(run, report=False)))

    federation.listener = AfterRoundOne()
    federation.run()
    final = (tmp_path / "run" / "summary.json").read_bytes()
    [(run, older)] = opened
    assert json.loads(older["summary.json"])["rounds"] == 1
    publish_results(run, older)
    assert (tmp_path / "run" / "summary.json").read_bytes() == final


def test_before_the_first_round(tmp_path: Path) -> None:
    pages = []

    class Early(Listener):
        def started(self, run: Run) -> None:
            pages.append(Page(result_files(run)["report.html"].decode()))

    Federation(tiny("pfedes"), out=tmp_path / "run", listener=Early()).run()
    (page,) = pages
    assert "0 of 1 round, seed 0: not finished" in page.text
    assert page.table("Private models").column("checked on") == ["no answer is stored here"]
    assert "0 answers to 0 tasks." in page.text


def test_a_file_that_goes_while_a_run_is_opened(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing: list[tuple[str, list[str], list[str]]] = [(str(copy), [], ["gone-since"])]
    monkeypatch.setattr("pfedes.store.run_store.os.walk", lambda place: listing)
    assert RunStore.open(copy).rounds()
    (copy / "gone-since").symlink_to("nowhere")
    assert execute(["report", str(copy)]) == 2


def test_without_the_data_it_says_so(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = json.loads((copy / "environment.json").read_text())
    (copy / "environment.json").write_text(json.dumps({**about, "data": "other"}))
    page = Page(render(open_run(copy)))
    assert page.text.count("Not shown: the data is not what the run was trained on.") == 2

    monkeypatch.setattr(sources, "load", _no_data)
    (copy / "state" / "data.safetensors").unlink()  # as in a run of an earlier version
    page = Page(render(open_run(copy)))
    assert page.text.count("Not shown: no such data.") == 2
    assert len(page.table("Clients, worst-off first").rows) == 4
    assert "Enhanced images" not in page.text


def test_the_report_needs_no_data_but_for_its_pictures(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Page(render(open_run(copy)))
    monkeypatch.setattr(sources, "load", _no_data)
    page = Page(render(open_run(copy)))
    assert "Not shown" not in page.text
    name = "Samples of each client, by class"
    assert page.table(name).rows == before.table(name).rows
    assert page.table("Private models").rows == before.table("Private models").rows
    assert "Enhanced images" not in page.text


def _no_data(*_: object) -> None:
    raise DataError("no such data")


def test_runs_beside_a_comparison_are_not_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "runs"
    for name in ("alone", "compared/fd/seed-0", "compared/fd/lambda=1/seed-1"):
        Federation(tiny("standalone", runtime__report=False), out=place / name).run()
    assert execute(["report", str(place)]) == 0
    names = ["alone", "compared/fd/lambda=1/seed-1", "compared/fd/seed-0"]
    pages = [place / name / "report.html" for name in names] + [place / "comparison.html"]
    assert capsys.readouterr().out.splitlines() == list(map(str, pages))
    assert not Path("comparison.html").exists()


def test_several_runs_are_compared(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "runs"
    for method, seed in (("standalone", 0), ("standalone", 1), ("fd", 0), ("fd", 1)):
        config = tiny(method, seed=seed, runtime__report=False)
        Federation(config, out=place / method / f"seed-{seed}").run()
    assert execute(["report", str(place), str(place / "fd" / "seed-0")]) == 0
    names = [f"{m}/seed-{s}" for m in ("fd", "standalone") for s in (0, 1)]
    expected = [*(str(place / name / "report.html") for name in names), "comparison.html"]
    assert capsys.readouterr().out.splitlines() == expected
    assert (place / "fd" / "seed-1" / "report.html").exists()

    html = Path("comparison.html").read_text()
    page = Page(html)
    assert [text for level, text in page.headings if level == "h2"] == [
        *("Results", "Accuracy over rounds and over traffic", "Clients", "Equal terms", "Runs")
    ]
    assert page.headings[0] == ("h1", "2 methods compared")
    results = page.table("Results")
    assert set(results.column("method")) == {"fd", "standalone"}
    assert results.column("runs") == ["2", "2"]
    summaries = [open_run(place / "fd" / f"seed-{seed}").summary for seed in (0, 1)]
    mean = np.mean([summary["mean_accuracy"] for summary in summaries])
    spread = np.std([summary["mean_accuracy"] for summary in summaries], ddof=1)
    row = results.rows[results.column("method").index("fd")]
    assert row[1] == f"{100 * mean:.2f} ± {100 * spread:.2f} %"
    assert "all runs have the same configuration" in page.text
    assert len(page.table("Runs").rows) == 4
    assert 'href="runs/fd/seed-0/report.html"' in html
    assert "(sends none)" in page.text

    assert execute(["report", str(place), str(finished), "--out", "other.html"]) == 0
    page = Page(Path("other.html").read_text())
    assert "not compare methods alone" in page.text
    assert "partition.clients" in page.table("Settings that differ").header


def test_settings_of_one_method_are_told_apart(tmp_path: Path) -> None:
    plain = {"runtime__report": False}
    runs = [
        Federation(tiny("standalone", train__lr=lr, **plain), out=tmp_path / f"{lr}").run()
        for lr in (0.01, 0.02)
    ]
    page = Page(render_comparison(runs, tmp_path / "page.html"))
    labels = page.table("Results").column("method")
    assert set(labels) == {"standalone lr=0.01", "standalone lr=0.02"}
    assert page.headings[0] == ("h1", "2 settings compared")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}", "--out", "page.html"], "--out is for the comparison of several runs"),
        (["{run}", "{other}", "--out", "no/page.html"], "cannot write no/page.html"),
        (["{run}", "{other}", "--out", "."], "cannot write ."),
        (["{run}", "nowhere"], "nowhere is not a run directory"),
        (["."], ". is not a run directory"),
    ],
)
def test_wrong_input_writes_nothing(
    arguments: list[str],
    said: str,
    finished: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = Path(shutil.copytree(finished, tmp_path_factory.mktemp("other") / "run"))
    before = [p.stat().st_mtime_ns for p in (finished / "report.html", other / "report.html")]
    words = [word.format(run=finished, other=other) for word in arguments]
    assert execute(["report", *words]) == 2
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert said in line
    assert shown.out == ""
    after = [p.stat().st_mtime_ns for p in (finished / "report.html", other / "report.html")]
    assert before == after
    assert not list(Path().iterdir())


def test_every_method_has_a_look_of_its_own() -> None:
    assert PALETTE.keys() == METHODS.keys()
    for key in ("color", "marker"):
        assert len({style[key] for style in PALETTE.values()}) == len(PALETTE)
    assert method_style("mine:Method") == method_style("mine:Method")
    assert method_style("mine:Method") not in PALETTE.values()
    styles = distinct_styles(["pfedes", "pfedes", "fd", "pfedes"])
    assert styles[0] == PALETTE["pfedes"]
    assert all(styles.count(style) == 1 for style in styles)


def test_formats() -> None:
    assert [counted(1, "run"), counted(2000, "run")] == ["1 run", "2,000 runs"]
    assert [measured(12, "B"), measured(1.5e6, "B"), measured(None, "B")] == [
        *("12 B", "1.5 MB", "- B")
    ]
    assert [between(3, 3), between(3, 4)] == ["3", "3 to 4"]
    assert listed(["a", "b", "c"], 2) == "a, b, 1 more"
