"""A run in a few lines: the closing table of commands, and what a notebook shows."""

import html
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from textwrap import wrap
from typing import Protocol

from pfedes.config import Config
from pfedes.core.measures import METRICS
from pfedes.formatting import clock, computed, count, counted, percent, told
from pfedes.methods import display_name
from pfedes.results.classwise import mean_measures, warning_of
from pfedes.results.summary import Row
from pfedes.store.manifest import Manifest


class Closed(Protocol):
    """The part of a run that is used here."""

    directory: Path
    config: Config
    manifest: Manifest
    rounds: list[Row]

    @property
    def class_names(self) -> tuple[str, ...]: ...
    @property
    def finished(self) -> bool: ...
    @property
    def trained(self) -> bool: ...
    @property
    def summary(self) -> Row: ...
    def why_untrained(self) -> str: ...
    def reading_rows(self) -> AbstractContextManager[None]: ...


BESIDE_NAMES = 62  # letters of a line of 80 that the names of rows leave


def closing_rows(run: Closed) -> dict[str, str]:
    """The results and costs of a run, each with its name."""
    summary = run.summary
    best = f"{percent(summary['best_accuracy'])} (round {summary['best_round']}, {_chosen_by(run)})"
    rows = {
        "method": _subject(summary),
        "accuracy": _accuracy(summary),
        **class_by_class(run, summary),
        "before training": percent(summary["initial_accuracy"]),
        "best round": best if summary["best_round"] is not None else "-",
        "sent": f"{count(summary['floats_down'])} floats down, "
        f"{count(summary['floats_up'])} floats up in {counted(summary['rounds'], 'round')}",
        "computed": f"{computed(summary['flops'])} in {clock(summary['seconds'])}",
    }
    if "flops_server" in summary:
        rows["by the server"] = computed(summary["flops_server"])
    for target in summary["targets"]:
        reached = f"round {target['round']}, {count(target['floats'])} floats"
        rows[f"until {percent(target['accuracy'])}"] = (
            "not reached" if target["round"] is None else reached
        )
    if "privacy" in summary:
        spent = summary["privacy"]
        ended = ", which ended the run" if "ended" in summary else ""
        rows["privacy"] = f"epsilon {max(spent['epsilon']):.2f} at delta {spent['delta']:g}{ended}"
    if trouble := len(summary["rejected_uploads"]) + len(summary["failed_clients"]):
        rows["trouble"] = f"{trouble} uploads rejected or clients failed; see the report"
    if run.config.runtime.report and run.finished:
        rows["report"] = str(run.directory / "report.html")
    return rows


def _accuracy(summary: Row) -> str:
    mean: float | None = summary["mean_accuracy"]
    if mean is None:
        return told(mean)
    spread = f"{100 * summary['std_accuracy']:.2f} points standard deviation over clients"
    return f"{percent(mean)}, {spread}"


def _chosen_by(run: Closed) -> str:
    """How the best round was chosen."""
    metric = run.config.metric
    return "by validation" if metric == "accuracy" else f"by {METRICS[metric]} of validation"


def class_by_class(run: Closed, summary: Row) -> dict[str, str]:
    """Measures class by class; empty for runs that did not record them."""
    if (baseline := summary["majority_baseline"]) is None:
        return {}
    rows = {
        "class by class": mean_measures(summary),
        "baseline": f"{percent(baseline)} right by always naming a client's commonest class",
    }
    if warning := warning_of(run):
        rows["warning"] = "\n".join(wrap(warning, BESIDE_NAMES))
    return rows


def headline(run: Closed) -> str:
    """A run in one line."""
    summary, rounds = run.summary, run.config.train.rounds
    result = (
        f"accuracy {told(summary['mean_accuracy'])}"
        if run.trained
        else "not trained"
        if not run.rounds
        else run.why_untrained()
    )
    if run.trained and (number := len(summary["one_class"])):
        result += f" ({counted(number, 'model')} of one class only)"
    return f"{_subject(summary)}, round {summary['rounds']} of {rounds}: {result}"


def _subject(summary: Row) -> str:
    method = display_name(summary["method"])
    return f"{method} on {summary['dataset']}, {summary['clients']} clients"


def as_html(run: Closed) -> str:
    """The headline, the curve and the closing table, for a notebook. All text is escaped."""
    with run.reading_rows():
        known = [run.manifest.initial_accuracy, *(row["accuracy"] for row in run.rounds)]
        curve = [float(accuracy) for accuracy in known if accuracy is not None]
    return (
        f"<p><b>{html.escape(headline(run))}</b></p>"
        f"{_picture(curve) if curve else ''}"
        f"{_table(closing_rows(run))}"
    )


def _picture(curve: Sequence[float]) -> str:
    picture = b64encode(_curve(curve).encode()).decode()
    label = f"mean accuracy after every round, at last {percent(curve[-1])}"
    return f'<img alt="{label}" width="420" src="data:image/svg+xml;base64,{picture}">'


def _table(rows: Mapping[str, str]) -> str:
    cells = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table>{cells}</table>"


WIDTH, HEIGHT = 420, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 10, 24


def _curve(accuracies: Sequence[float]) -> str:
    """Accuracy over rounds as a small picture: an image, so that no page's style changes it."""
    last = max(1, len(accuracies) - 1)

    def x(round: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * round / last

    def y(accuracy: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - accuracy)

    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}" '
        f'stroke="#dddddd"/><text x="{LEFT - 6}" y="{y(share) + 4:.1f}" '
        f'text-anchor="end">{share:.0%}</text>'
        for share in (0.0, 0.5, 1.0)
    )
    points = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in enumerate(accuracies))
    end = (
        f'<circle cx="{x(len(accuracies) - 1):.1f}" cy="{y(accuracies[-1]):.1f}" r="3" '
        'fill="#0072b2"/>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="11" fill="#1a1a1a">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>{grid}'
        f'<text x="{LEFT}" y="{HEIGHT - 7}">round 0</text>'
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 7}" text-anchor="end">'
        f"{len(accuracies) - 1}</text>"
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="1.8"/>{end}</svg>'
    )
