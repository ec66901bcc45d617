"""The figures, in one style: readable at column width, on paper, and by the colour-blind."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from pfedes.formatting import count

# Of Okabe and Ito's colour-blind-safe palette, without its yellow, which white paper swallows.
BLUE, ORANGE = "#0072b2", "#d55e00"
AMBER, SKY, GREEN, PURPLE = "#e69f00", "#56b4e9", "#009e73", "#cc79a7"
BROWN, TEAL, CRIMSON, VIOLET, OLIVE = "#8c510a", "#01665e", "#a50f15", "#54278f", "#6b6b00"
INK, GREY, GRID = "#1a1a1a", "#767676", "#dddddd"

STYLE: dict[Any, Any] = {
    "font.size": 10,
    **{f"{what}.color": INK for what in ("text", "xtick", "ytick")},
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "svg.hashsalt": "pfedes",  # the same run gives the same file
}

PALETTE: dict[str, dict[str, Any]] = {
    "pfedes": {"color": ORANGE, "linestyle": "-", "marker": "o"},
    "standalone": {"color": GREY, "linestyle": "--", "marker": "s"},
    "fedavg": {"color": INK, "linestyle": ":", "marker": "D"},
    "fml": {"color": AMBER, "linestyle": "-.", "marker": "^"},
    "fedkd": {"color": GREEN, "linestyle": "--", "marker": "v"},
    "lg_fedavg": {"color": PURPLE, "linestyle": "-.", "marker": "<"},
    "fd": {"color": SKY, "linestyle": "-", "marker": ">"},
    "fedproto": {"color": BLUE, "linestyle": "--", "marker": "P"},
    "fedssa": {"color": BROWN, "linestyle": "-", "marker": "p"},
    "fedgh": {"color": TEAL, "linestyle": "-.", "marker": "d"},
    "fedre": {"color": CRIMSON, "linestyle": "--", "marker": "H"},
    "fedtgp": {"color": VIOLET, "linestyle": "-", "marker": "8"},
    "fedmrl": {"color": OLIVE, "linestyle": "-.", "marker": "X"},
}
"""The style of each built-in method in all figures: no two differ in colour alone."""

_OTHERS: list[dict[str, Any]] = [
    {"color": color, "linestyle": (0, dashes), "marker": marker}
    for dashes, marker in (((5, 1, 1, 1, 1, 1), "X"), ((1, 1), "*"), ((8, 2), "h"))
    for color in (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, GREY)
]

MARKED_ROUNDS = 40  # beyond, markers would hide the line
VECTOR_DOTS = 300  # beyond, dots travel as one picture: a page must stay small
NARROW = (4.6, 2.8)  # inches; at a phone's width its letters are still readable


def method_style(name: str) -> dict[str, Any]:
    """Colour, line style and marker of a method, as keywords of matplotlib's `plot`.

    A name that is not built in always gets the same style, which no built-in method has.
    """
    if name in PALETTE:
        return dict(PALETTE[name])
    number = int.from_bytes(hashlib.sha256(name.encode(errors="replace")).digest()[:4])
    return dict(_OTHERS[number % len(_OTHERS)])


def distinct_styles(methods: Sequence[str]) -> list[dict[str, Any]]:
    """A style for each, as `method_style` has it; where one is taken, the next that is free.

    Colours are not used twice before all are in use.
    """
    styles: list[dict[str, Any]] = []
    for method in methods:
        used = [style["color"] for style in (*styles, *map(method_style, methods))]
        spare = sorted(_OTHERS, key=lambda style: used.count(style["color"]))
        wishes = [method_style(method), *spare]
        styles.append(dict(next((s for s in wishes if s not in styles), wishes[0])))
    return styles


def accuracy_figure(rounds: Sequence[Mapping[str, Any]], initial: float | None) -> Figure:
    """Mean test accuracy after every round, with validation beside it."""
    with mpl.rc_context(STYLE):
        figure, axes = narrow_axes(2)
        numbers = [0, *(row["round"] for row in rounds)]
        axes.plot(
            numbers,
            [initial, *(row["accuracy"] for row in rounds)],
            color=BLUE,
            marker="o" if len(rounds) <= MARKED_ROUNDS else None,
            markersize=3,
            label="test",
        )
        if rounds and rounds[0]["val_accuracy"] is not None:
            axes.plot(
                numbers[1:],
                [row["val_accuracy"] for row in rounds],
                color=ORANGE,
                linestyle="--",
                marker="s" if len(rounds) == 1 else None,
                markersize=3,
                label="validation",
            )
        accuracy_over_rounds(axes)
        legend_above(figure, axes)
    return figure


def distribution_figure(accuracies: Sequence[float]) -> Figure:
    """How many clients have which accuracy, with a line at their mean."""
    mean = float(np.mean(accuracies))
    with mpl.rc_context(STYLE):
        figure, axes = narrow_axes()
        axes.hist(accuracies, bins=[step / 20 for step in range(21)], color=BLUE, rwidth=0.9)
        axes.axvline(mean, color=ORANGE, linestyle="--", linewidth=1.8)
        axes.annotate(
            f"mean {mean:.1%}",
            (mean, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-6 if mean > 0.5 else 6, -2),
            textcoords="offset points",
            ha="right" if mean > 0.5 else "left",
            va="top",
        )
        axes.margins(y=0.2)
        axes.set(xlabel="test accuracy", ylabel="clients", xlim=(-0.01, 1.01))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(False, axis="x")
    return figure


def partition_figure(
    counts: NDArray[np.int64], class_names: Sequence[str], names: Sequence[str] = ()
) -> Figure:
    """Which client (row) holds how much of which class: a dot per pair, its area the share.

    Participants have names of their own, which are shown instead of numbers.
    """
    clients, classes = counts.nonzero()
    held = counts[clients, classes]
    width = min(16.0, max(4.4, 3.0 + 0.28 * len(counts)))  # with fewer the title would be cut off
    height = min(14.0, 1.6 + 0.28 * len(class_names))
    cell = 72 * min((width - 1.5) / len(counts), (height - 1.2) / len(class_names))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        axes = figure.add_subplot()
        area = (0.9 * cell) ** 2 * held / counts.max()
        axes.scatter(
            clients,
            classes,
            s=area,
            color=BLUE,
            linewidths=0,
            rasterized=len(held) > VECTOR_DOTS,
        )
        axes.set(
            xlabel="client",
            ylabel="class",
            xlim=(-0.6, len(counts) - 0.4),
            ylim=(len(class_names) - 0.4, -0.6),
        )
        # Over the whole figure: long names of classes leave too little room over the axes.
        title = f"largest dot: {counts.max():,} samples of one class"
        figure.suptitle(title, fontsize=mpl.rcParams["axes.titlesize"])
        if len(class_names) <= 40:
            # Class names come from folders or participants: a dollar sign does not begin a formula.
            axes.set_yticks(range(len(class_names)), class_names, parse_math=False)
        if names:
            axes.set(xlabel="participant")
            axes.set_xticks(range(len(names)), names, rotation=90, parse_math=False)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20))
    return figure


def narrow_axes(legend_entries: int = 0) -> tuple[Figure, Axes]:
    """Axes in a figure that grows with the lines its legend will take."""
    figure = Figure(figsize=(NARROW[0], NARROW[1] + 0.22 * -(-legend_entries // 2)))
    return figure, figure.add_subplot()


def plain_log_scale(axes: Axes) -> None:
    """Of what is drawn by now, with numbers as people write them: 30,000."""
    axes.set_xscale("log")
    least, most = axes.get_xlim()
    decades = math.log10(most / least)
    axes.xaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5) if decades < 1 else (1, 3) if decades < 2 else (1,))
    )
    axes.xaxis.set_major_formatter(lambda value, _: count(value))
    axes.xaxis.set_minor_formatter(NullFormatter())


def accuracy_over_rounds(axes: Axes) -> None:
    axes.set(xlabel="round", ylabel="mean accuracy over clients", ylim=(0, 1.02))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def legend_above(figure: Figure, axes: Axes) -> None:
    """Puts the legend above the axes, where it covers no line."""
    handles, labels = axes.get_legend_handles_labels()
    columns = 2 if max(map(len, labels)) <= 24 else 1
    legend = figure.legend(
        handles, labels, loc="outside upper center", ncols=columns, frameon=False, handlelength=3.2
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
