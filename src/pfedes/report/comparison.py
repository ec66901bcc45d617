"""Several runs on one page: methods side by side, over seeds, and what else differs."""

import json
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from pfedes.formatting import count, counted, listed, percent
from pfedes.methods import display_name
from pfedes.report.compared_figures import (
    compared_accuracy_figure,
    compared_clients_figure,
    compared_costs_figure,
    curve_of,
)
from pfedes.report.figures import distinct_styles
from pfedes.report.grid import MOST_ROWS, Grid, GridCell, flops, number, share, shortened, text
from pfedes.report.svg import inline_svg
from pfedes.report.template import fill

if TYPE_CHECKING:
    from pfedes.results.run import Run
    from pfedes.results.summary import Row

MOST_LINES = 10  # in a figure; the best by validation of more
OF_NO_MATTER = {"seed", "compare", "runtime"}
"""The keys that may differ between runs that are averaged."""


@dataclass(frozen=True)
class Entry:
    """Runs that differ in their seeds alone."""

    runs: "Sequence[Run]"
    settings: Mapping[str, str]

    @property
    def method(self) -> str:
        return self.runs[0].config.method.name

    @cached_property
    def summaries(self) -> "list[Row]":
        return [run.summary for run in self.runs]

    @property
    def validation(self) -> float:
        """Validation of the best round, mean over runs; 0 where nothing was validated."""
        return statistics.fmean(run.manifest.best_validation or 0 for run in self.runs)

    @property
    def trained(self) -> bool:
        """Whether every run has a round that succeeded; else its accuracies are of no training."""
        return all(run.trained for run in self.runs)

    def mean(self, key: str) -> float | None:
        """None where a run has none; nor do runs that trained nobody have an accuracy."""
        if "accuracy" in key and not self.trained:
            return None
        values = [summary.get(key, 0) for summary in self.summaries]
        return None if None in values else statistics.fmean(values)


def render_comparison(runs: "Sequence[Run]", page: Path) -> str:
    """The page that shows runs side by side. Links lead from where it will be to their reports."""
    for run in runs:
        run.known_accuracies()
    entries = sorted(_entries(runs), key=lambda entry: -(entry.mean("mean_accuracy") or 0))
    labels = _labels(entries)
    drawn = sorted(entries, key=lambda entry: -entry.validation)[:MOST_LINES]
    drawn = [entry for entry in entries if entry in drawn]  # in the order of the table
    styles = distinct_styles([entry.method for entry in drawn])
    curves = [
        curve_of(labels[id(entry)], style, entry.runs)
        for entry, style in zip(drawn, styles, strict=True)
    ]
    return fill(
        "comparison.html",
        title=_title(entries),
        runs=len(runs),
        datasets=sorted({run.config.data.source for run in runs}),
        methods=len({entry.method for entry in entries}),
        seeds=sorted({run.config.seed for run in runs}),
        best=_winner(entries, labels),
        best_accuracy=entries[0].mean("mean_accuracy"),
        untrained=[labels[id(entry)] for entry in entries if not entry.trained],
        unfinished=sum(not run.finished for run in runs),
        results=_result_grid(entries, labels),
        undrawn=len(entries) - len(drawn),
        accuracy=inline_svg(compared_accuracy_figure(curves), "accuracy"),
        costs=inline_svg(compared_costs_figure(curves), "costs"),
        clients=inline_svg(compared_clients_figure(curves), "clients"),
        says=[f"{c.label} {percent(float(c.accuracy[:, -1].mean()))}" for c in curves],
        differences=_difference_grid(entries, labels),
        listing=_run_grid(runs, entries, labels, page),
    )


def _last_rounds(entries: Sequence[Entry]) -> int:
    """Over how many rounds the last accuracy is averaged: ten, if there were so many."""
    rounds = [summary["rounds"] for entry in entries for summary in entry.summaries]
    return min(10, max(rounds, default=10))


def _winner(entries: Sequence[Entry], labels: Mapping[int, str]) -> str:
    """The entries with the highest accuracy; several if they are equal as printed."""
    highest = percent(entries[0].mean("mean_accuracy"))
    if entries[0].mean("mean_accuracy") is None:
        return "nobody"
    first = [labels[id(e)] for e in entries if percent(e.mean("mean_accuracy")) == highest]
    return first[0] if len(first) == 1 else f"a tie of {listed(first, 4)}"


def _title(entries: Sequence[Entry]) -> str:
    methods = {entry.method for entry in entries}
    if len(entries) == 1:
        return f"{counted(len(entries[0].runs), 'run')} of {display_name(entries[0].method)}"
    things = "methods" if len(methods) == len(entries) else "settings"
    return f"{len(entries)} {things} compared"


def _entries(runs: "Iterable[Run]") -> list[Entry]:
    found: dict[str, list[Run]] = defaultdict(list)
    settings: dict[str, dict[str, str]] = {}
    for run in runs:
        chosen = _settings(run)
        key = json.dumps(chosen)
        settings[key] = chosen
        found[key].append(run)
    return [Entry(group, settings[key]) for key, group in found.items()]


def _settings(run: "Run") -> dict[str, str]:
    """Every dotted key with its value, and which data it was."""
    tree = run.config.model_dump(mode="json", exclude=OF_NO_MATTER)
    flat: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": _words(inner) for key, inner in value.items()}
        else:
            flat[name] = _words(value)
    return {**flat, "SHA-256 of the data": str(run.environment["data"])[:12]}


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _labels(entries: Sequence[Entry]) -> dict[int, str]:
    """The method; and where there are several of one, what sets them apart, in a word or two."""
    labels: dict[int, str] = {}
    for entry in entries:
        others = [other for other in entries if other.method == entry.method]
        keys = [key for key in entry.settings if len({o.settings.get(key) for o in others}) > 1]
        apart = [f"{key.rpartition('.')[2]}={entry.settings[key]}" for key in keys]
        if len(apart) > 2 or len(" ".join(apart)) > 30:
            apart = [f"({_place(entry)})"]
        label = shown = " ".join([display_name(entry.method), *apart])
        while shown in labels.values():
            shown = f"{label} #{1 + sum(known.startswith(label) for known in labels.values())}"
        labels[id(entry)] = shown
    return labels


def _place(entry: Entry) -> str:
    """The last part of where its runs are that is not the seed's."""
    place = entry.runs[0].directory.resolve()
    name = place.parent.name if place.name.startswith("seed-") else place.name
    return name if len(name) <= 24 else f"{name[:23]}…"


def _result_grid(entries: Sequence[Entry], labels: Mapping[int, str]) -> Grid:
    goals = sorted({t["accuracy"] for e in entries for s in e.summaries for t in s["targets"]})
    server_trains = any(entry.mean("flops_server") for entry in entries)
    rows = []
    for entry in entries[:MOST_ROWS]:
        worst = statistics.fmean(min(summary["accuracies"]) for summary in entry.summaries)
        floats = sum(entry.mean(f"floats_{direction}") or 0 for direction in ("down", "up"))
        seconds = entry.mean("seconds") or 0
        rows.append(
            [
                text(labels[id(entry)]),
                _with_spread([summary["mean_accuracy"] for summary in entry.summaries])
                if entry.trained
                else share(None),
                share(entry.mean("std_accuracy")),
                share(worst if entry.trained else None),
                share(entry.mean("balanced_accuracy")),
                share(entry.mean("auc") if entry.trained else None),
                number(sum(len(summary["one_class"]) for summary in entry.summaries)),
                share(entry.mean("best_accuracy")),
                share(entry.mean("last10_accuracy")),
                number(floats),
                flops(entry.mean("flops")),
                *([flops(entry.mean("flops_server"))] if server_trains else []),
                GridCell(f"{seconds:.0f} s", seconds),
                *(_until(entry, goal) for goal in goals),
                number(len(entry.runs)),
            ]
        )
    return Grid(
        "Results, means over seeds",
        [
            *("method", "accuracy", "over clients", "worst client"),
            *("balanced", "AUC", "one class only", "best by val."),
            *(f"last {_last_rounds(entries)}", "floats", "FLOP"),
            *(["server FLOP"] if server_trains else []),
            "time",
            *(f"until {100 * goal:g} %" for goal in goals),
            "runs",
        ],
        rows,
        shortened(len(entries), "settings, the best", "the runs' own reports"),
    )


def _with_spread(values: Sequence[float]) -> GridCell:
    mean = statistics.fmean(values)
    spread = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return GridCell(f"{100 * mean:.2f}{spread} %", mean)


def _until(entry: Entry, goal: float) -> GridCell:
    """The mean round in which an accuracy was first reached, if all runs reached it."""
    reached = [
        target["round"]
        for summary in entry.summaries
        for target in summary["targets"]
        if target["accuracy"] == goal and target["round"] is not None
    ]
    if len(reached) < len(entry.runs):
        return GridCell("-")
    mean = statistics.fmean(reached)
    return GridCell(f"{mean:g}", mean)


def _difference_grid(entries: Sequence[Entry], labels: Mapping[int, str]) -> Grid | None:
    """The settings, apart from the methods' own, in which the runs are not on equal terms."""
    keys = dict.fromkeys(key for entry in entries for key in entry.settings)
    differing = [
        key
        for key in keys
        if not key.startswith("method.") and len({e.settings.get(key) for e in entries}) > 1
    ]
    if not differing:
        return None
    rows = [
        [text(labels[id(entry)]), *(text(entry.settings.get(key, "-")) for key in differing)]
        for entry in entries[:MOST_ROWS]
    ]
    return Grid("Settings that differ", ["method", *differing], rows)


def _run_grid(
    runs: "Sequence[Run]", entries: Sequence[Entry], labels: Mapping[int, str], page: Path
) -> Grid:
    of = {id(run): labels[id(entry)] for entry in entries for run in entry.runs}
    results = {id(run): s for e in entries for run, s in zip(e.runs, e.summaries, strict=True)}
    rows = []
    for run in runs[:MOST_ROWS]:
        summary = results[id(run)]
        rounds = count(summary["rounds"]) + ("" if run.finished else " (not finished)")
        trouble = len(summary["rejected_uploads"]) + len(summary["failed_clients"])
        rows.append(
            [
                GridCell(str(run.directory), link=_link(run.directory / "report.html", page)),
                text(of[id(run)]),
                GridCell(str(summary["seed"]), summary["seed"]),
                GridCell(rounds, summary["rounds"]),
                share(summary["mean_accuracy"]),
                number(trouble),
            ]
        )
    return Grid(
        "Runs, each with a report of its own",
        ["run", "method", "seed", "rounds", "accuracy", "failures"],
        rows,
        shortened(len(runs), "runs", "the directories given"),
    )


def _link(target: Path, page: Path) -> str:
    """Relative, so that it holds wherever the whole is moved; quoted, so that it is a path only."""
    return quote(os.path.relpath(target.resolve(), page.resolve().parent))
