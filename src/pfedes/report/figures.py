"""The figures, in one style: readable at column width and by the colour-blind."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from pfedes.data.partition import Rows, Share

BLUE, ORANGE = "#0072b2", "#d55e00"  # of Okabe and Ito's colour-blind-safe palette

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "svg.hashsalt": "pfedes",  # the same run gives the same file
}


def accuracy_figure(rounds: Sequence[Mapping[str, Any]], initial: float) -> Figure:
    """Mean test accuracy after every round, with validation beside it."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.2))
        axes = figure.add_subplot()
        numbers = [0, *(row["round"] for row in rounds)]
        axes.plot(
            numbers,
            [initial, *(row["accuracy"] for row in rounds)],
            color=BLUE,
            marker="o",
            markersize=3,
            label="test",
        )
        if rounds and rounds[0]["val_accuracy"] is not None:
            axes.plot(
                numbers[1:],
                [row["val_accuracy"] for row in rounds],
                color=ORANGE,
                linestyle="--",
                label="validation",
            )
        axes.set(xlabel="round", ylabel="mean accuracy over clients", ylim=(0, 1.02))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False, loc="lower right")
    return figure


def partition_figure(shares: Sequence[Share], labels: Rows, class_names: Sequence[str]) -> Figure:
    """Which client holds how much of which class: a dot per pair, its area the share."""
    counts = np.array(
        [np.bincount(labels[share.rows()], minlength=len(class_names)) for share in shares]
    )
    clients, classes = counts.nonzero()
    held = counts[clients, classes]
    width = min(16.0, 3.0 + 0.28 * len(shares))
    height = min(14.0, 1.6 + 0.28 * len(class_names))
    cell = 72 * min((width - 1.5) / len(shares), (height - 1.2) / len(class_names))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        axes = figure.add_subplot()
        area = (0.9 * cell) ** 2 * held / counts.max()
        axes.scatter(clients, classes, s=area, color=BLUE, linewidths=0)
        axes.set(
            xlabel="client",
            ylabel="class",
            xlim=(-0.6, len(shares) - 0.4),
            ylim=(len(class_names) - 0.4, -0.6),
            title=f"largest dot: {counts.max():,} samples of one class",
        )
        if len(class_names) <= 40:
            axes.set_yticks(range(len(class_names)), class_names)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
