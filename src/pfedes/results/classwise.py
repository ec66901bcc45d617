"""Scores class by class, in words: the accuracy alone hides what a model cannot do."""

from collections.abc import Sequence
from typing import Protocol

from pfedes.core.measures import METRICS, Metric, Tally, added
from pfedes.core.scores import Scores
from pfedes.formatting import listed, percent
from pfedes.store.manifest import Manifest

MOST_NAMED = 4  # clients in one line


class MeasuredRun(Protocol):
    """The part of a run that is used here."""

    manifest: Manifest

    @property
    def class_names(self) -> tuple[str, ...]: ...


def class_name(label: int, names: Sequence[str]) -> str:
    """Quoted; a number where the names are not known."""
    return repr(names[label]) if label < len(names) else f"class {label}"


def one_class_words(tally: Tally | None, names: Sequence[str]) -> str:
    """A remark on a model that predicts one class only; '' for all others."""
    if tally is None or (label := tally.only_class) is None:
        return ""
    return f"predicts one class only, {class_name(label, names)}"


def untested_words(tally: Tally | None, names: Sequence[str]) -> str:
    """A remark on test samples of one class only; '' if there are several classes."""
    if tally is None or len(tally.held) != 1:
        return ""
    (label,) = tally.held
    return f"all test samples are of one class, {class_name(label, names)}"


def other_measures(scores: Scores) -> str:
    """All measures except the accuracy, in one line; '' where they are not known."""
    return _in_one_line({metric: scores.by(metric) for metric in METRICS})


def mean_measures(summary: dict[str, float | None]) -> str:
    """The same of the mean over clients."""
    return _in_one_line({metric: summary.get(metric) for metric in METRICS})


def rows_of(scores: Scores, names: Sequence[str]) -> dict[str, str]:
    """The rows below an accuracy in a table of one model's facts."""
    if scores.test is None:
        return {}
    rows = {"class by class": other_measures(scores)}
    if (baseline := scores.test.baseline) is not None:
        rows["baseline"] = f"{percent(baseline)} right by always naming the commonest class"
    if words := one_class_words(scores.test, names):
        rows["warning"] = f"the model {words}"
    elif words := untested_words(scores.test, names):
        rows["warning"] = f"{words}: the accuracy does not show whether the model knows another"
    return rows


def pooled(run: MeasuredRun) -> Tally | None:
    """The test samples of all clients in one table; None where that is not known of all."""
    known = [score.test for score in run.manifest.scores.values() if score.test is not None]
    return added(known) if len(known) == len(run.manifest.clients) else None


def warning_of(run: MeasuredRun) -> str:
    """Names the clients whose models predict one class only; '' if there is none."""
    scores = sorted(run.manifest.scores.items())
    found = [
        (name, label)
        for name, score in scores
        if (tally := score.test) is not None and (label := tally.only_class) is not None
    ]
    if not found:
        return ""
    shown = [f"{name} ({class_name(label, run.class_names)})" for name, label in found]
    if len(scores) == 1:
        return f"the model predicts one class only: {shown[0]}"
    many = f"{len(found):,} of {len(scores):,} clients' models"
    return f"{many} predict one class only: {listed(shown, MOST_NAMED)}"


def _in_one_line(values: dict[Metric, float | None]) -> str:
    return ", ".join(
        f"{METRICS[metric]} {percent(value)}"
        for metric, value in values.items()
        if metric != "accuracy" and value is not None
    )
