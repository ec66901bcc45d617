"""Figures that show several methods side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from pfedes.report.figures import (
    BLUE,
    GREY,
    INK,
    NARROW,
    ORANGE,
    STYLE,
    accuracy_over_rounds,
    legend_above,
    narrow_axes,
    plain_log_scale,
)
from pfedes.results.paired import Difference
from pfedes.results.run import Run
from pfedes.results.summary import Row


@dataclass(frozen=True)
class Curve:
    """The data of one method in a figure: a row of accuracies for each run, from round 0 on."""

    label: str
    style: Mapping[str, Any]
    accuracy: NDArray[np.float64]  # runs x (1 + rounds)
    floats: NDArray[np.float64]  # sent in both directions until then, mean over runs
    flops: NDArray[np.float64] | None  # computed until then, mean over runs; None = withheld
    clients: NDArray[np.float64]  # accuracies of all clients of all runs, at the end


def curve_of(label: str, style: Mapping[str, Any], runs: Sequence[Run]) -> Curve:
    """The curve of runs with different seeds, up to the last round that all of them have."""
    length = min(len(run.rounds) for run in runs)
    accuracy, floats, flops = [], [], []
    for run in runs:
        with run.reading_rows():
            rows = run.rounds[:length]
            accuracy.append([run.manifest.initial_accuracy, *(row["accuracy"] for row in rows)])
            floats.append([0, *(row["floats_down"] + row["floats_up"] for row in rows)])
            flops.append([0, *(_computed(row) for row in rows)])
    known = all(value is not None for row in flops for value in row)
    return Curve(
        label=label,
        style=style,
        accuracy=np.array(accuracy, np.float64),
        floats=np.array(floats, np.float64).cumsum(axis=1).mean(axis=0),
        flops=np.array(flops, np.float64).cumsum(axis=1).mean(axis=0) if known else None,
        clients=np.concatenate([run.summary["accuracies"] for run in runs]),
    )


def _computed(row: Row) -> float | None:
    return None if row["flops"] is None else row["flops"] + row.get("flops_server", 0)


def compared_accuracy_figure(curves: Sequence[Curve]) -> Figure:
    """Mean accuracy over rounds, a line for each method; a band from the least to the best seed."""
    with mpl.rc_context(STYLE):
        figure, axes = narrow_axes(len(curves))
        for curve in curves:
            numbers = np.arange(curve.accuracy.shape[1])
            _line(axes, curve, numbers, curve.accuracy.mean(axis=0))
            if len(curve.accuracy) > 1:
                low, high = curve.accuracy.min(axis=0), curve.accuracy.max(axis=0)
                axes.fill_between(
                    numbers, low, high, color=curve.style["color"], alpha=0.15, linewidth=0
                )
        accuracy_over_rounds(axes)
        legend_above(figure, axes)
    return figure


def compared_costs_figure(curves: Sequence[Curve]) -> Figure:
    """Mean accuracy over the floats sent; without any, a level line at the last accuracy."""
    return _over_costs(
        [(curve, curve.floats) for curve in curves], "floats sent, both directions", "sends none"
    )


def compared_flops_figure(curves: Sequence[Curve]) -> Figure | None:
    """Mean accuracy over the FLOPs of clients and server; None where participants withhold them."""
    known = [(curve, curve.flops) for curve in curves if curve.flops is not None]
    if not known:
        return None
    return _over_costs(known, "FLOP, clients and server", "computes nothing")


def _over_costs(
    curves: Sequence[tuple[Curve, NDArray[np.float64]]], axis: str, without: str
) -> Figure:
    with mpl.rc_context(STYLE):
        figure, axes = narrow_axes(len(curves))
        for curve, costs in curves:
            accuracy = curve.accuracy.mean(axis=0)
            if costs[-1] > 0:
                # On a scale of powers the first rounds of methods that send nothing then are left
                # of everything.
                spent = costs > 0
                _line(axes, curve, costs[spent], accuracy[spent])
            else:
                style = {key: curve.style[key] for key in ("color", "linestyle")}
                axes.axhline(accuracy[-1], **style, label=f"{curve.label} ({without})")
        if any(costs[-1] > 0 for _, costs in curves):
            plain_log_scale(axes)
        axes.set(xlabel=axis, ylabel="mean accuracy", ylim=(0, 1.02))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        legend_above(figure, axes)
    return figure


def compared_clients_figure(curves: Sequence[Curve]) -> Figure:
    """A box for each method: the middle half of its clients, whiskers from worst to best."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(NARROW[0], 1.0 + 0.36 * len(curves)))
        axes = figure.add_subplot()
        boxes = axes.boxplot(
            [curve.clients for curve in curves],
            orientation="horizontal",
            whis=(0, 100),
            widths=0.55,
            patch_artist=True,
            showmeans=True,
            meanprops={"marker": "D", "markersize": 4, "mfc": INK, "mec": INK},
            medianprops={"color": INK, "linewidth": 1.6},
            boxprops={"color": INK},
            whiskerprops={"color": INK},
            capprops={"color": INK},
        )
        for box, curve in zip(boxes["boxes"], curves, strict=True):
            box.set(facecolor=curve.style["color"], alpha=0.6)
        axes.set_yticks(
            range(1, len(curves) + 1), [curve.label for curve in curves], parse_math=False
        )
        axes.invert_yaxis()
        axes.set(xlabel="test accuracy of a client", xlim=(-0.02, 1.02))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid(False, axis="y")
    return figure


def differences_figure(differences: Mapping[str, Difference], reference: str) -> Figure:
    """Mean paired differences to a reference in points, with their 95 % intervals.

    Those whose interval contains 0 are hollow: not decided.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(NARROW[0], 1.1 + 0.34 * len(differences)))
        axes = figure.add_subplot()
        axes.axvline(0, color=GREY, linewidth=1.2)
        for place, gap in enumerate(differences.values()):
            mean, low, high = (100 * value for value in (gap.mean, gap.low, gap.high))
            decided = gap.verdict != "not decided"
            colour = {"ahead": BLUE, "behind": ORANGE, "not decided": INK}[gap.verdict]
            axes.errorbar(
                mean,
                place,
                xerr=[[max(0.0, mean - low)], [max(0.0, high - mean)]],
                fmt="o",
                color=colour,
                markerfacecolor=colour if decided else "white",
                capsize=3,
            )
        axes.set_yticks(range(len(differences)), list(differences), parse_math=False)
        # Around zero, and never so narrow that a hundredth of a point looks like much.
        reach = max(1.0, *(110 * max(abs(gap.low), abs(gap.high)) for gap in differences.values()))
        axes.set(xlim=(-reach, reach), ylim=(len(differences) - 0.5, -0.5))
        axes.set_xlabel(f"points ahead of {reference}, client by client", parse_math=False)
        axes.grid(False, axis="y")
    return figure


def _line(axes: Axes, curve: Curve, x: NDArray[Any], y: NDArray[np.float64]) -> None:
    style = dict(curve.style)
    every = max(1, len(x) // 10)
    axes.plot(x, y, **style, markersize=5, markevery=every, linewidth=1.6, label=curve.label)
