"""Measures class by class: scikit-learn's numbers, what they choose, and models of one class."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from commands import command
from pfedes import Config, Federation, Run, open_run
from pfedes.cli._federation import show_end
from pfedes.core.measures import Measures, Metric, Tally, added
from pfedes.core.scores import Scores
from pfedes.core.tallying import tally_of
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.status import status_of
from pfedes.deploy.rehearsal import terms_of
from pfedes.errors import WireError
from pfedes.export.model_files import export_model
from pfedes.results.classwise import rows_of
from pfedes.sweep.cells import Cell, Outcome
from pfedes.sweep.compared import Comparison
from running import rows, small
from ward import ward

ANSWERS = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(-3, 3), min_size=4, max_size=4)),
    min_size=1,
    max_size=30,
)


def given_answers(answers: list[tuple[int, list[int]]]) -> tuple[Tensor, Tensor]:
    labels, logits = zip(*answers, strict=True)
    return torch.tensor(labels), torch.tensor(logits, dtype=torch.float32)


def tallied(labels: Tensor, logits: Tensor) -> Tally:
    return tally_of(labels, logits.argmax(1), logits)


@given(ANSWERS)
@pytest.mark.filterwarnings("ignore::UserWarning")  # scikit-learn's on classes that are only named
def test_numbers_are_those_of_scikit_learn(answers: list[tuple[int, list[int]]]) -> None:
    labels, logits = given_answers(answers)
    called, tally = logits.argmax(1), tallied(labels, logits)
    assert tally.accuracy == pytest.approx(sk.accuracy_score(labels, called))
    assert tally.balanced_accuracy == pytest.approx(sk.balanced_accuracy_score(labels, called))
    assert tally.macro_f1 == pytest.approx(sk.f1_score(labels, called, average="macro"))
    matrix = sk.confusion_matrix(labels, called, labels=range(4))
    assert {(label, call): n for label, call, n in tally.counts} == {
        (int(label), int(call)): matrix[label, call] for label, call in np.argwhere(matrix)
    }
    for label in range(4):
        is_one, says_one = labels == label, called == label
        if is_one.any():
            assert tally.sensitivity(label) == pytest.approx(sk.recall_score(is_one, says_one))
        if not is_one.all():
            specificity = sk.recall_score(~is_one, ~says_one)
            assert tally.specificity(label) == pytest.approx(specificity)


@given(ANSWERS)
def test_areas_are_those_of_scikit_learn(answers: list[tuple[int, list[int]]]) -> None:
    labels, logits = given_answers(answers)
    assume(len(labels.unique()) > 1)
    chances = logits.double().softmax(1)
    areas = dict(tallied(labels, logits).areas)
    assert areas.keys() == set(labels.tolist())
    for label, area in areas.items():
        expected = sk.roc_auc_score(labels == label, chances[:, label])
        assert area == pytest.approx(expected)


def test_several_classes_are_averaged_one_against_the_rest() -> None:
    torch.manual_seed(0)
    labels, logits = torch.arange(30) % 3, torch.randn(30, 3)
    chances = logits.double().softmax(1)
    expected = sk.roc_auc_score(labels, chances, multi_class="ovr")
    assert tallied(labels, logits).auc == pytest.approx(expected)


def test_by_hand() -> None:
    """Nine of ten are well, and a model calls everybody well."""
    labels, logits = torch.tensor([0] * 9 + [1]), torch.tensor([[2.0, 1.0]]).repeat(10, 1)
    tally = tallied(labels, logits)
    assert (tally.accuracy, tally.baseline, tally.balanced_accuracy) == (0.9, 0.9, 0.5)
    assert (tally.only_class, tally.auc) == (0, 0.5)
    assert tally.sensitivity(1) == 0
    assert added([tally, tally]).counts == ((0, 0, 18), (1, 0, 2))


def test_a_model_is_not_blamed_where_all_samples_have_one_class() -> None:
    tally = tallied(torch.zeros(3, dtype=torch.int64), torch.tensor([[1.0, 0.0]]).repeat(3, 1))
    assert (tally.only_class, tally.auc, tally.accuracy) == (None, None, 1.0)
    assert Tally(()).by("macro_f1") is None


def test_test_samples_of_one_class_show_little(trap: Run, tmp_path: Path) -> None:
    """Right on all of them, whatever the model knows of others."""
    known = Scores(0, 0, 3, 3, Measures(Tally(()), Tally(((0, 0, 3),))))
    words = "all test samples are of one class, 'well'"
    found = rows_of(known, ("well", "ill"))
    assert found["warning"].startswith(f"{words}: the accuracy does not show")
    model = trap.personal("east")
    other = replace(model, facts=replace(model.facts, scores=known), class_names=("well", "ill"))
    export_model(other, tmp_path / "model")
    assert f"**Warning: {words}." in (tmp_path / "model" / "README.md").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"val": {"counts": []}, "test": {"counts": [[0, 1, 0]]}}',
        '{"val": {"counts": []}, "test": {"counts": [[0, 1, 2], [0, 1, 2]]}}',
        '{"val": {"counts": []}, "test": {"counts": [[1, 1, 2], [0, 1, 2]]}}',
        '{"val": {"counts": []}, "test": {"counts": [], "areas": [[0, 1.5]]}}',
        '{"val": {"counts": []}, "test": {"counts": []}, "more": 1}',
    ],
)
def test_impossible_measures_are_refused(text: str) -> None:
    with pytest.raises(WireError):
        Measures.from_text(text)


def test_scores_and_their_classes_agree() -> None:
    known = Measures(Tally(()), Tally(((0, 0, 3), (1, 0, 1))))
    assert Measures.from_text(known.to_text()) == known
    assert Scores(0, 0, 3, 4, known).by("balanced_accuracy") == 0.5
    with pytest.raises(WireError, match="differ from the sum"):
        Scores(0, 0, 4, 4, known)


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose models have learned nothing but which class is common."""
    place = tmp_path_factory.mktemp("trap")
    config = ward(place, train__lr=0.002, train__rounds=1, runtime__report=True)
    return Federation(config, out=place / "run").run()


def test_one_class_models_are_named_in_the_terminal(trap: Run) -> None:
    summary = trap.summary
    assert summary["one_class"] == ["east", "west"]
    assert summary["mean_accuracy"] == summary["majority_baseline"] > 0.9
    assert summary["balanced_accuracy"] == 0.5
    done = command("resume", str(trap.directory))
    said = " ".join(done.stdout.split())
    assert "2 of 2 clients' models predict one class only: east ('well'), west ('well')" in said
    assert "balanced accuracy 50.00 %" in said
    done = command("predict", str(trap.directory), "--client", "east", rows_to_predict(trap))
    assert "the model predicts one class only, 'well'" in done.stdout


def test_the_trap_is_named_where_the_accuracy_is_shown_to_programmers(trap: Run) -> None:
    assert "(2 models of one class only)" in repr(trap)
    cell = Cell("pfedes/seed-0", trap.config, trap.directory)
    comparison = Comparison([Outcome(cell, trap)], ["pfedes"], trap.config, trap.directory)
    assert "2 of 2 models predict one class only: east" in repr(comparison)


@pytest.mark.parametrize("form", ["--csv", "--json"])
def test_who_takes_predictions_as_numbers_is_warned_beside_them(trap: Run, form: str) -> None:
    words = ("predict", str(trap.directory), "--client", "east", rows_to_predict(trap))
    done = command(*words, form)
    assert done.returncode == 0
    assert "one class only" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert "the model predicts one class only, 'well'" in line


def test_a_coordinator_that_is_told_the_measures_is_told_the_trap(
    trap: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    show_end(trap, quiet=False, json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "2 of 2 clients' models predict one class only" in said
    assert "balanced accuracy 50.00 %" in said


def test_its_status_tells_it_too(trap: Run, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "federation")
    layout.directory.mkdir()
    layout.config.write_text(terms_of(trap.config).to_toml())
    shutil.copytree(trap.directory, layout.run)
    notes = [person.note for person in status_of(layout).people]
    assert notes == ["predicts one class only, 'well'"] * 2


def rows_to_predict(run: Run) -> str:
    path = run.directory.parent / "rows.csv"
    path.write_text("temperature,pulse\n39.5,80\n")
    return str(path)


def test_one_class_models_are_named_in_the_report(trap: Run) -> None:
    page = (trap.directory / "report.html").read_text()
    words = "2 of 2 clients&#39; models predict one class only: east (&#39;well&#39;)"
    assert page.count(words) == 2
    assert "predicts one class only, &#39;well&#39;" in page  # beside the client
    assert "sensitivity" in page


def test_one_class_models_are_named_in_the_card(trap: Run, tmp_path: Path) -> None:
    export_model(trap.personal("east"), tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "**Warning: the model predicts one class only, 'well'." in card
    assert "Always predicting the most common class would be right on 90.91 %" in card
    assert "| ill | 2 | 0 | 0 | 0.00 % | 100.00 % |" in card
    assert "| well | 0 | 20 |" in card
    header = card.split("---")[1]
    assert "type: balanced_accuracy" in header
    assert "type: roc_auc" in header


@pytest.mark.parametrize("remedy", ["class_weights", "sampler"])
def test_with_balanced_classes_it_learns(remedy: str, tmp_path: Path) -> None:
    plain = Federation(ward(tmp_path), out=tmp_path / "plain").run().summary
    balanced = ward(tmp_path, **{f"train__{remedy}": "balanced"})
    found = Federation(balanced, out=tmp_path / "balanced").run().summary
    assert plain["one_class"] == ["east", "west"]
    assert found["one_class"] == []
    assert found["balanced_accuracy"] > plain["balanced_accuracy"] + 0.1


def chosen(config: Config, out: Path) -> Run:
    return Federation(config, out=out).run()


@pytest.fixture(scope="module")
def by_accuracy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return chosen(small(train__rounds=2), tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.parametrize("metric", ["balanced_accuracy", "auc"])
def test_a_metric_chooses_the_best_round_and_nothing_else(
    metric: Metric, by_accuracy: Run, tmp_path: Path
) -> None:
    plain = by_accuracy
    run = chosen(small(train__rounds=2, evaluate__metric=metric), tmp_path / "run")
    digests = [{n: s.digest for n, s in r.manifest.clients.items()} for r in (plain, run)]
    assert digests[0] == digests[1]
    assert run.summary["flops"] == plain.summary["flops"]
    found = rows(run.directory / "rounds.jsonl")
    values = [row["val_metric"] for row in found]
    assert run.manifest.best_round == 1 + values.index(max(values))
    assert run.manifest.best_validation == max(values)
    for row, before in zip(found, rows(plain.directory / "rounds.jsonl"), strict=True):
        more = row.keys() - before.keys()
        assert more == {"val_metric", "balanced_accuracy", "macro_f1", "auc"}
        assert row["accuracy"] == before["accuracy"]
    known = [score.val_by(metric) for score in run.manifest.scores.values()]
    mean = np.mean([value for value in known if value is not None])
    assert values[-1] == pytest.approx(mean)
    (row, *_) = rows(run.directory / "clients.jsonl")
    assert row["val_metric"] is not None
    assert row["balanced_accuracy"] is not None


def test_patience_waits_for_the_metric(tmp_path: Path) -> None:
    """Plain accuracy improves by calling everybody well; balanced accuracy does not."""
    settings: dict[str, Any] = {"train__lr": 1e-6, "train__rounds": 6, "train__patience": 2}
    config = ward(tmp_path, evaluate__metric="balanced_accuracy", **settings)
    run = chosen(config, tmp_path / "run")
    values = [row["val_metric"] for row in rows(run.directory / "rounds.jsonl")]
    best = 1 + values.index(max(values))
    assert run.manifest.best_round == best
    assert run.manifest.round == best + 2 < 6


@pytest.mark.usefixtures("cells_here")
def test_a_comparison_shows_the_measures(trap: Run, tmp_path: Path) -> None:
    done = command(
        *("compare", str(trap.directory / "config.toml"), "--methods", "pfedes"),
        *("--out", str(tmp_path / "compare"), "--jobs", "1"),
    )
    assert done.returncode == 0, done.stderr
    assert "pfedes: 2 of 2 models predict one class only: east (seed 0), west (seed 0)" in (
        done.stdout
    )
    (record, *_) = json.loads((tmp_path / "compare" / "compare.json").read_text())
    assert record["balanced_accuracy"] == 0.5
    page = command("report", str(tmp_path / "compare"))
    assert page.returncode == 0, page.stderr


def test_the_manifest_holds_them_once(trap: Run) -> None:
    standing = next(iter(open_run(trap.directory).manifest.clients.values()))
    assert standing.scores is not None
    assert standing.scores.measures is not None
    assert standing.local == standing.scores.plain
    assert "measures" not in standing.model_dump()["local"]
