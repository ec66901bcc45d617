"""The paper's experiments: every one runs, shows what it should, and shares its runs."""

import csv
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.collections import Collection, PathCollection

from commands import MAIN, Done, command
from pfedes.config import configure
from pfedes.errors import ConfigError
from pfedes.methods.pfedes import PFedESConfig
from pfedes.reproduction.experiment import Accuracy, Results, cell_of
from pfedes.reproduction.experiments import experiment_named, experiments
from pfedes.reproduction.experiments.sweeps import (
    EXTRACTOR_EPOCHS,
    MU,
    NON_IID,
    PARTICIPATION,
    epochs,
)
from pfedes.reproduction.experiments.tables import cells, from_paper, setting
from pfedes.reproduction.methodology import origin
from pfedes.reproduction.published import published
from pfedes.reproduction.record import Record
from pfedes.reproduction.runner import Campaign
from pfedes.reproduction.scale import FULL, LAPTOP, SCALES, SMOKE, scale_named
from pfedes.reproduction.scenario import COMPARED, DATA, NAMES, SCENARIOS, Setting, option
from pfedes.sweep.cells import Outcome
from running import hyper_parameters
from scales import TINY


def paper(*arguments: str) -> Done:
    return command("paper", *arguments)


ENDS = (
    (NON_IID, (2, 10), (10, 100)),
    (PARTICIPATION, (0.1, 1.0), (0.1, 1.0)),
    (MU, (0.1, 0.5), (0.1, 0.5)),
    (EXTRACTOR_EPOCHS, (5, 20), (5, 20)),
)
"""What is varied, and the two values of it that are run here for either data set."""

VALUES = {axis.symbol: dict(axis.values) for axis, *_ in ENDS}


def test_what_the_paper_varies() -> None:
    shares = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    assert dict(VALUES) == {
        "c": {"cifar10": (2, 4, 6, 8, 10), "cifar100": (10, 30, 50, 70, 90, 100)},
        "C": {"cifar10": shares, "cifar100": shares},
        "mu": dict.fromkeys(DATA, (0.1, 0.2, 0.3, 0.4, 0.5)),
        "E_fe": dict.fromkeys(DATA, (5, 10, 15, 20)),
    }


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All experiments, run once, with their archive beside them; smoke is even smaller meanwhile.

    About 80 runs, and the pages with their figures in three formats, take the time. The runs are
    in this process: with one job none is beside another anyway.
    """
    out = tmp_path_factory.mktemp("paper") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, "smoke", TINY)
        patch.setattr("pfedes.sweep.execute.of_this_program", lambda method: True)
        for axis, *ends in ENDS:
            for data, values in zip(DATA, ends, strict=True):
                patch.setitem(axis.values, data, values)
        words = ["--quiet", "--jobs", "1", "--archive", str(out.with_name("kept"))]
        done = paper("all", "--out", str(out), *words)
        assert done.returncode == 0, done.stderr
        assert [Path(line).parent.name for line in done.stdout.splitlines()] == list(experiments())
        yield out


@pytest.mark.repeat
def test_the_scale_smoke_as_a_user_runs_it(tmp_path: Path) -> None:
    """178 runs of the scale that `pfedes paper all` has, in processes, take some minutes."""
    words = ["paper", "all", "--out", str(tmp_path / "out"), "--quiet"]
    done = subprocess.run([*MAIN, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [Path(line).parent.name for line in done.stdout.splitlines()] == list(experiments())
    assert Campaign(list(experiments().values()), SMOKE, tmp_path / "out").missing() == []


def table(place: Path, experiment: str, name: str) -> list[dict[str, str]]:
    """The rows of a table that was made at the scale smoke, which its name and head say."""
    path = place / experiment / f"{at_smoke(experiment, name)}.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [{key.partition(" (scale smoke")[0]: value for key, value in r.items()} for r in rows]


def at_smoke(experiment: str, name: str) -> str:
    """What a table or figure is called that is made of stand-in data."""
    if name == "runs" or experiment_named(experiment).deviations is not None:
        return name
    return "-".join(["smoke", *(SMOKE.stand_ins.get(part, part) for part in name.split("-"))])


def area_of(bubble: Collection) -> float:
    assert isinstance(bubble, PathCollection)
    return float(bubble.get_sizes()[0])


def test_the_list_names_them_all() -> None:
    done = paper("list")
    assert done.returncode == 0
    for name, experiment in experiments().items():
        (line,) = re.findall(rf"^{name} .*$", done.stdout, re.MULTILINE)
        assert experiment.title in line
        assert experiment.source in line
    for name in SCALES:
        assert re.search(rf"^{name} ", done.stdout, re.MULTILINE)
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_wrong_words_get_one_line() -> None:
    for words, what in (
        (["tabel-homogeneous"], "did you mean 'table-homogeneous'"),
        (["models", "--scale", "laptpo"], "did you mean 'laptop'"),
        (["models", "--plan", "--draw"], "give one of them"),
        (["models", "--against", "fedprot"], "did you mean 'fedproto'"),
    ):
        done = paper(*words)
        assert done.returncode == 2
        assert what in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not Path("runs").exists()


TABLES = [f"{data}{what}" for data in DATA for what in ("", "-selected", "-differences")]
MADE: dict[str, tuple[list[str], list[str]]] = {
    "models": (["models"], []),
    "table-homogeneous": (TABLES, []),
    "table-heterogeneous": (TABLES, []),
    "convergence": (["convergence"], ["convergence"]),
    "individual": (["individual"], ["individual"]),
    "tradeoff": (["tradeoff", "ratios"], ["tradeoff"]),
    "tsne": (["tsne"], ["tsne"]),
    "enhanced": (["enhanced"], ["enhanced"]),
    "noniid": (["c-cifar10", "c-cifar100"], ["noniid"]),
    "participation": (["c-cifar10", "c-cifar100"], ["participation"]),
    "sensitivity": (
        [f"{what}-{data}" for what in ("mu", "e_fe") for data in DATA],
        ["sensitivity"],
    ),
    "claims": (["claims"], []),
    "ablation": (["ablation"], []),
    "sharing": (["sharing"], []),
    "rules": (["rules"], ["rules"]),
    "leaderboard": ([*DATA], []),
    "public-code": (["public-code"], []),
    "theory": (["constants", "proof"], ["lemma", "gradients", "learning_rate"]),
}
"""The tables and the pictures of every experiment."""


def test_every_experiment_leaves_all_its_files(everything: Path) -> None:
    for name, experiment in experiments().items():
        place = everything / name
        page = (place / "README.md").read_text()
        assert page.startswith(f"# {experiment.title}\n")
        for text in SMOKE.deviations if experiment.deviations is None else experiment.deviations:
            assert f"\n- {text}\n" in page
        tables, pictures = ([at_smoke(name, part) for part in kind] for kind in MADE[name])
        for table in tables:
            for kind in ("md", "csv", "tex"):
                lines = (place / f"{table}.{kind}").read_text().splitlines()
                assert len(lines) >= 3, (name, table, kind)  # columns, and two rows at least
        assert re.findall(r"\]\((.*)\.png\)", page) == pictures
        for picture in pictures:
            assert (place / f"{picture}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
            assert (place / f"{picture}.pdf").read_bytes()[:5] == b"%PDF-"
            assert "<svg" in (place / f"{picture}.svg").read_text()[:1000]


def test_the_tables_hold_every_method_scenario_and_the_papers_values(everything: Path) -> None:
    for kind in ("homogeneous", "heterogeneous"):
        for data in DATA:
            rows = table(everything, f"table-{kind}", data)
            assert [row["method"] for row in rows] == [NAMES[method] for method in COMPARED]
            for method, row in zip(COMPARED, rows, strict=True):
                for clients in SCENARIOS:
                    theirs = from_paper(method, data, clients, homogeneous=kind == "homogeneous")
                    printed = row[f"N={clients}: paper"]
                    assert printed == ("-" if theirs is None else f"{theirs:.2f}")
                    ours = row[f"N={clients}: ours"]
                    assert re.fullmatch(r"-|\d+\.\d\d( ± \d+\.\d\d)?", ours), row
                    if theirs is not None and ours != "-":
                        difference = float(row[f"N={clients}: difference"])
                        assert difference == pytest.approx(
                            float(ours.split()[0]) - theirs, abs=0.011
                        )
    page = (everything / "table-heterogeneous" / "README.md").read_text()
    assert "not converged" in page
    assert "seeds 0, 1, 2" in page
    latex = (everything / "table-homogeneous" / "smoke-digits.tex").read_text()
    assert r"\toprule" in latex
    # A table is pasted alone: its name, its head and its notes say that it is no result.
    assert "method (scale smoke, digits images instead of CIFAR)" in latex
    assert "Nothing about the methods can be learned" in latex
    assert not list((everything / "table-homogeneous").glob("cifar*"))


def test_a_cell_of_the_table_is_the_runs_accuracy(everything: Path) -> None:
    record = Results(TINY, everything).record(setting("fml", "cifar10", 10, homogeneous=True))
    assert record is not None
    assert record.config.method.name == "fml"
    summary = json.loads((record.directory / "summary.json").read_text())
    (row,) = [r for r in table(everything, "table-homogeneous", "cifar10") if r["method"] == "FML"]
    assert row["N=10: ours"] == f"{100 * summary['mean_accuracy']:.2f}"


def test_a_page_says_where_its_numbers_come_from(everything: Path) -> None:
    results = Results(TINY, everything)
    rows = table(everything, "ablation", "runs")
    assert len(rows) == 15
    for row in rows:
        summary = json.loads((everything / "cells" / row["run"] / "summary.json").read_text())
        assert (int(row["seed"]), row["N"]) == (summary["seed"], str(summary["clients"]))
        assert row["accuracy (%)"] == f"{100 * summary['mean_accuracy']:.2f}"
    command_line, runs, machine = origin(experiment_named("ablation"), results)
    assert command_line == "`pfedes paper ablation --scale smoke`"
    assert re.match(r"15 of 15 runs finished, a core each, \d\.\d hours in all", runs)
    assert f"torch {torch.__version__}" in machine
    page = (everything / "ablation" / "README.md").read_text()
    for line in (command_line, runs, machine):
        assert f"\n- {line}\n" in page
    # Nothing is computed for the table of models.
    assert list(origin(experiment_named("models"), results)) == [
        "`pfedes paper models --scale smoke`"
    ]


def test_a_table_without_runs_says_so_in_a_line(tmp_path: Path) -> None:
    results = Results(SMOKE, tmp_path)
    table = experiment_named("table-homogeneous")
    assert "42 empty cells: not run yet." in table.show(results).notes
    for name, panels in (("convergence", 6), ("individual", 6), ("tradeoff", 2), ("noniid", 2)):
        figure = experiment_named(name).show(results).figures[name]
        said = [text.get_text() for axes in figure.axes for text in axes.texts]
        assert said == ["not run yet"] * panels
    assert list(origin(table, results))[1:] == ["42 runs, none of them finished."]
    # Of nothing there is no page.
    done = paper("all", "--draw", "--out", "nothing")
    assert done.returncode == 0, done.stderr
    assert "\ntheory: 0 of 1 runs, no page yet\n" in done.stdout
    assert [path.name for path in Path("nothing").iterdir()] == ["models"]


def test_curves_boxes_and_sweeps_have_all_their_marks(everything: Path) -> None:
    assert len(table(everything, "convergence", "convergence")) == 7 * 6
    assert len(table(everything, "individual", "individual")) == 7 * 6
    for row in table(everything, "individual", "individual"):
        numbers = [
            float(row[key]) for key in ("worst", "quartile 1", "median", "quartile 3", "best")
        ]
        assert numbers == sorted(numbers)
    results = Results(TINY, everything)
    figure = experiment_named("convergence").show(results).figures["convergence"]
    assert [len(axes.lines) for axes in figure.axes] == [7] * 6
    boxes = experiment_named("individual").show(results).figures["individual"]
    assert [len(axes.get_xticklabels()) for axes in boxes.axes] == [7] * 6
    means = [
        [
            float(np.asanyarray(line.get_ydata())[0])
            for line in axes.lines
            if line.get_marker() == "+"
        ]
        for axes in boxes.axes
    ]
    told = [float(row["mean"]) for row in table(everything, "individual", "individual")]
    assert [mean for panel in means for mean in panel] == pytest.approx(told, abs=0.006)
    for name, panels in (("noniid", 2), ("participation", 2), ("sensitivity", 4)):
        figure = experiment_named(name).show(results).figures[name]
        assert len(figure.axes) == panels
        lines = 1 if name == "sensitivity" else 2
        for axes in figure.axes:
            assert len(axes.lines) == lines
            for line in axes.lines:
                assert list(np.asanyarray(line.get_xdata())) == list(axes.get_xticks())
    assert [row["c"] for row in table(everything, "noniid", "c-cifar100")] == ["10", "100"]
    assert len(table(everything, "participation", "c-cifar10")) == 2
    assert len(table(everything, "sensitivity", "mu-cifar10")) == 2
    assert len(table(everything, "sensitivity", "e_fe-cifar100")) == 2


def test_the_tradeoff_keeps_payload_and_rounds_apart(everything: Path) -> None:
    ratios = table(everything, "tradeoff", "ratios")
    assert len(ratios) == 6
    for row in ratios:
        # FedProto: two classes of 500 numbers, up in both rounds, and down in the second as far as
        # anybody reported them in the first. pFedES: 443 each way in each.
        payload = float(row["payload per round"])
        assert 1.13 <= payload <= 1.69
        if row["N"] == "10":  # where everybody did
            assert payload == 1.69
    costs = table(everything, "tradeoff", "tradeoff")
    assert len(costs) == 12
    figure = experiment_named("tradeoff").show(Results(TINY, everything)).figures["tradeoff"]
    for axes, data in zip(figure.axes, DATA.values(), strict=True):
        reached = [row for row in costs if row["data"] == data and row["target"] != "-"]
        assert reached
        spots = [np.asanyarray(bubble.get_offsets())[0] for bubble in axes.collections]
        assert [f"{x:.0f}" for x, _ in spots] == [
            row["floats until"].replace(",", "") for row in reached
        ]
        assert [f"{y:.2f}" for _, y in spots] == [row["accuracy (%)"] for row in reached]
        assert [text.get_text() for text in axes.texts] == [
            f"N={row['N']}, {row['target']}" for row in reached
        ]
        areas = [area_of(bubble) for bubble in axes.collections]
        assert max(areas) == 912
    assert {row["paper's target"] for row in costs if row["data"] == "CIFAR-100"} == {
        *("70%", "60%", "50%")
    }


def test_pictures_that_need_states_outlive_them(everything: Path) -> None:
    results = Results(TINY, everything)
    assert not list(everything.glob("cells/*/state"))
    exhibit = experiment_named("tsne").show(results)
    rows = exhibit.tables["tsne"].rows
    assert [row[0] for row in rows] == ["FedProto", "pFedES"]
    assert all(row[2] == "3" for row in rows)
    assert [len(axes.collections) for axes in exhibit.figures["tsne"].axes] == [3, 3]
    for axes, row in zip(exhibit.figures["tsne"].axes, rows, strict=True):
        shown = [np.asanyarray(marks.get_offsets()) for marks in axes.collections]
        assert sum(map(len, shown)) == int(row[1])
    (legend,) = exhibit.figures["tsne"].legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named[:3] == ["client 0", "client 1", "client 2"]
    assert all(name.startswith("class ") for name in named[3:])
    assert len(named) > 4
    exhibit = experiment_named("enhanced").show(results)
    assert len(exhibit.tables["enhanced"].rows) == 5
    (axes,) = exhibit.figures["enhanced"].axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["original", "enhanced"]
    assert len(axes.get_xticks()) == 5


def test_the_theory_is_measured_on_three_clients(everything: Path) -> None:
    constants = table(everything, "theory", "constants")
    assert [row["client"] for row in constants] == [f"client-{n:04d}" for n in range(3)]
    for row in constants:
        # Three lower bounds: the way down a path that bends upwards nowhere gives a negative one.
        assert min(float(row["L1, secant"]), float(row["L1, Hessian"])) > 0
    verdicts = {row["step"]: row["verdict"] for row in table(everything, "theory", "proof")}
    assert verdicts["(a) drops eta mu <g, p>"] == "does not follow"
    assert verdicts["(a) and (d) at the same point"] == "exclude each other"
    figures = experiment_named("theory").show(Results(TINY, everything)).figures
    assert [len(figure.axes) for figure in figures.values()] == [3, 3, 3]


def test_every_claim_has_a_verdict(everything: Path) -> None:
    rows = table(everything, "claims", "claims")
    assert len(rows) == 18
    assert {row["verdict"] for row in rows} <= {"confirmed", "not confirmed"}
    says = "\n".join(row["the paper says: pFedES"] for row in rows)
    for figure in ("1.00", "1.61", "1/224", "1/5.85"):
        assert figure in says
    assert "443 floats each way against 2,621,558" in rows[-1]["we found"]


def test_the_ablation_pairs_seeds(everything: Path) -> None:
    rows = {row["variant"]: row for row in table(everything, "ablation", "ablation")}
    assert len(rows) == 5
    for row in rows.values():
        assert len(row["by seed"].split()) == 3
    assert rows["pFedES"]["pFedES is ahead by"].split() == ["+0.00"] * 3
    mine, other = (
        [float(value) for value in rows[name]["by seed"].split()]
        for name in ("pFedES", "Standalone")
    )
    ahead = [float(value) for value in rows["Standalone"]["pFedES is ahead by"].split()]
    assert ahead == pytest.approx([a - b for a, b in zip(mine, other, strict=True)], abs=0.011)
    assert rows["pFedES"]["floats sent up"] != "0"
    assert rows["pFedES, local"]["floats sent up"] == rows["Standalone"]["floats sent up"] == "0"


READING = ("convergence", "individual", "tsne", "enhanced", "ablation", "theory")
"""Between them they read all that is kept of a run: its summary, its rows, what was measured."""


def test_nothing_is_run_twice_and_everything_can_be_drawn_again(
    everything: Path, tmp_path: Path
) -> None:
    wanted = [
        config
        for e in experiments().values()
        for s in e.settings(TINY)
        for config in TINY.configs(s)
    ]
    different = {config.result_digest() for config in wanted}
    assert len(list((everything / "cells").iterdir())) == len(different) < len(wanted)
    assert Campaign(list(experiments().values()), TINY, everything).missing() == []
    # An archive has no states, and gives the same tables and figures.
    kept = everything.with_name("kept")
    for name in READING:
        done = paper(name, "--out", str(kept), "--draw", "--quiet")
        assert done.returncode == 0, done.stderr
    made = sorted(path.relative_to(kept) for path in kept.glob("*/*.*"))
    assert {path.parts[0] for path in made} == set(READING)
    assert len(made) > 50
    for path in made:
        assert (kept / path).read_bytes() == (everything / path).read_bytes(), path
    records = {path.relative_to(kept): path.read_text() for path in kept.glob("cells/*/*.json")}
    assert str(everything) not in "".join(records.values())
    # What was run without one can be archived later.
    words = ["tsne", "--out", str(everything), "--draw", "--quiet"]
    done = paper(*words, "--archive", "late")
    assert done.returncode == 0, done.stderr
    late = {path.relative_to("late"): path.read_text() for path in Path("late").glob("*/*/*.json")}
    assert len(late) >= 2
    assert late.items() <= records.items()
    # And somebody who has nothing else need not run anything of it again.
    fresh = Campaign(list(experiments().values()), TINY, tmp_path / "fresh", archive=kept)
    assert fresh.missing() == []
    done = paper("claims", "--out", "fresh", "--archive", str(kept), "--quiet")
    assert done.returncode == 0, done.stderr
    page = (everything / "claims" / "README.md").read_bytes()
    assert Path("fresh/claims/README.md").read_bytes() == page
    assert not list(Path("fresh").glob("cells/*/state"))


def test_a_run_is_archived_when_it_ends_and_not_with_the_last(tmp_path: Path) -> None:
    experiment = experiment_named("tsne")
    work = Campaign([experiment], TINY, tmp_path / "out", archive=tmp_path / "kept")

    def interrupt(working: Mapping[str, int], outcomes: Sequence[Outcome]) -> None:
        if (tmp_path / "kept").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work.perform([experiment], jobs=1, watch=interrupt)
    first, second = work.cells()
    kept = tmp_path / "kept" / "cells" / first.name
    assert Record.of(kept, first.config) is not None
    assert (kept / "tsne.json").is_file()
    elsewhere = Campaign([experiment], TINY, tmp_path / "elsewhere", archive=tmp_path / "kept")
    assert [cell.name for cell in elsewhere.missing()] == [second.name]
    elsewhere.bring()
    assert [cell.name for cell in replace(elsewhere, archive=None).missing()] == [second.name]
    # A copy that was interrupted is no record.
    (kept / "summary.json").unlink()
    third = Campaign([experiment], TINY, tmp_path / "third", archive=work.archive)
    assert len(third.missing()) == 2


def test_the_plan_starts_nothing(tmp_path: Path) -> None:
    done = paper("table-homogeneous", "--plan", "--out", "o", "--methods", "standalone,fd")
    assert done.returncode == 0
    assert "12, of which 0 are finished" in done.stdout
    assert re.search(r"time +about \d+:\d\d min", done.stdout)
    assert not (tmp_path / "o").exists()
    # The paper's grid: eight choices of E and B, times 1, 9, 2, 1, 3, 3 and 20 of the methods'.
    work = Campaign([experiment_named("table-homogeneous")], FULL, tmp_path)
    assert len(work.cells()) == 6 * 8 * (1 + 9 + 2 + 1 + 3 + 3 + 20)


def test_settings_become_configurations() -> None:
    (equal,) = SMOKE.configs(setting("fml", "cifar10", 10, homogeneous=True))
    assert equal.models.pool == ("cnn1",)
    (laptop,) = LAPTOP.configs(setting("pfedes", "cifar100", 50, homogeneous=False))
    assert laptop.models.pool == ("cnn1", "cnn2", "cnn3", "cnn4", "cnn5")
    assert laptop.partition.clients == 50
    assert laptop.partition.classes_per_client == 10
    assert laptop.train.selected(50) == 10
    method = hyper_parameters(laptop, PFedESConfig)
    assert (method.mu, method.extractor_epochs) == (0.1, 1)
    (full,) = FULL.configs(EXTRACTOR_EPOCHS.setting("pfedes", "cifar10", 20))
    assert hyper_parameters(full, PFedESConfig).extractor_epochs == 20
    assert (full.train.epochs, full.train.rounds) == (10, 500)
    (smoke,) = SMOKE.configs(NON_IID.setting("fedproto", "cifar100", 30))
    assert smoke.partition.classes_per_client == 6
    (half,) = LAPTOP.configs(Setting("pfedes", participation=0.5))
    assert (half.train.rounds, half.train.selected(100)) == (5, 50)
    # Whole rounds: about as long at every C, and said how long.
    participation, mu = (replace(axis, values=VALUES[axis.symbol]) for axis in (PARTICIPATION, MU))
    lengths = epochs(LAPTOP, participation)
    assert lengths == pytest.approx([5, 4.8, 5, 5.6, 5.4, 4])
    assert len(set(epochs(LAPTOP, mu))) == 1
    # More than one batch an epoch, or there is no noise to measure.
    for scale in SCALES.values():
        (theory,) = scale.configs(experiment_named("theory").settings(scale)[0])
        assert theory.train.batch_size < 0.8 * theory.data.limit / theory.partition.clients


def test_equal_runs_have_one_place(tmp_path: Path) -> None:
    (of_table,) = LAPTOP.configs(setting("pfedes", "cifar10", 100, homogeneous=False))
    (of_sweep,) = LAPTOP.configs(MU.setting("pfedes", "cifar10", 0.1))
    (other,) = LAPTOP.configs(Setting("pfedes", options=option(mu=0.2)))
    assert cell_of(of_table, tmp_path) == cell_of(of_sweep, tmp_path)
    assert cell_of(other, tmp_path).directory != cell_of(of_table, tmp_path).directory
    elsewhere = configure(method="fd", data_dir=tmp_path, settings={"runtime.threads": 2})
    assert elsewhere.result_digest() == configure(method="fd").result_digest()
    assert configure(method="fd").result_digest() != configure(method="fml").result_digest()
    assert configure(seed=1).result_digest() != configure().result_digest()


def test_accuracies_over_seeds_by_hand() -> None:
    assert str(Accuracy((50.0, 60.0))) == "55.00 ± 7.07"
    assert Accuracy((50.0, 60.0)).minus(56.0) == "-1.00"
    assert str(Accuracy((), "-")) == "-"
    assert Accuracy(()).minus(3.0) == ""


def test_the_papers_numbers_are_those_of_its_tables() -> None:
    assert published("Table 3", "pFedES", "N=50, C=20%, CIFAR-100") == 64.32
    assert published("Table 2", "FD", "N=100, C=10%, CIFAR-10") is None
    with pytest.raises(KeyError, match="no value"):
        published("Table 4", "pFedES", "N=50")
    # The two gains that the paper claims follow from its own tables.
    for homogeneous, gain in ((True, 1.00), (False, 1.61)):
        leads = []
        for cell in cells(homogeneous=homogeneous, methods=["pfedes"]):
            values = {
                method: from_paper(method, cell.data, cell.clients, homogeneous=homogeneous)
                for method in COMPARED
            }
            own = values.pop("pfedes")
            assert own is not None
            leads.append(own - max(value for value in values.values() if value is not None))
        assert max(leads) == pytest.approx(gain)


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match="did you mean 'claims'"):
        experiment_named("claim")
    with pytest.raises(ConfigError, match="unknown scale"):
        scale_named("huge")
