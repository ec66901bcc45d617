"""The confusion matrix of a run's models on test samples: a picture and two tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from pfedes.core.measures import METRICS, Tally
from pfedes.formatting import percent
from pfedes.report.figures import BLUE, INK, STYLE
from pfedes.report.grid import MOST_ROWS, Grid, number, share, shortened, text
from pfedes.report.svg import inline_svg
from pfedes.results.classwise import pooled, warning_of

if TYPE_CHECKING:
    from pfedes.results.run import Run

MOST_PANELS = 6  # clients with a picture of their own
MOST_NUMBERS = 12  # classes; with more the cells have no room for counts
MOST_TICKS = 40
DARKEST = 0.65  # letters on it must stay readable


@dataclass(frozen=True)
class Classes:
    """The section of a report; `warning` is '' if no model names one class only."""

    svg: str
    says: str
    panels: int
    facts: list[tuple[str, str]]
    grid: Grid
    warning: str


def classes_of(run: "Run") -> Classes | None:
    """None where scores are not known class by class, as in federations and earlier runs."""
    whole = pooled(run)
    if whole is None:
        return None
    scores = sorted(run.manifest.scores.items())
    tables = [("all clients", whole)] if len(scores) > 1 else []
    if len(scores) <= MOST_PANELS:
        tables += [(name, score.test) for name, score in scores if score.test is not None]
    summary, names = run.summary, run.class_names
    baseline = percent(summary["majority_baseline"])
    facts = [(METRICS[metric], percent(summary[metric])) for metric in METRICS if metric in summary]
    accuracy = ("accuracy", percent(summary["mean_accuracy"]))
    return Classes(
        inline_svg(confusion_figure(tables, names), "confusion"),
        f"Of {whole.samples:,} test samples {whole.correct:,} were classified correctly. "
        "The table has the counts of each class.",
        len(tables),
        [accuracy, *facts, ("always naming the commonest class", baseline)],
        _grid(whole, names),
        warning_of(run),
    )


def confusion_figure(tables: Sequence[tuple[str, Tally]], names: Sequence[str]) -> Figure:
    """A panel for each table: a row for each class, a column for each prediction."""
    shown = sorted({label for _, tally in tables for label in (*tally.held, *tally.called)})
    columns = min(3, len(tables))
    rows = -(-len(tables) // columns)
    side = max(1.9, min(6.0, 0.9 + 0.34 * len(shown)))
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=(columns * side + 0.6, rows * (side + 0.3)))
        for place, (title, tally) in enumerate(tables, 1):
            axes = figure.add_subplot(rows, columns, place)
            _panel(axes, _matrix(tally, shown))
            axes.set_title(title, fontsize=mpl.rcParams["font.size"], parse_math=False)
            axes.set(xlabel="called", ylabel="is")
            if len(shown) <= MOST_TICKS:
                words = [names[label] if label < len(names) else str(label) for label in shown]
                places = np.arange(len(shown)) + 0.5
                axes.set_xticks(places, words, rotation=90, parse_math=False)
                axes.set_yticks(places, words, parse_math=False)
            else:
                axes.set(xticks=[], yticks=[])
    return figure


def _matrix(tally: Tally, shown: Sequence[int]) -> NDArray[np.int64]:
    place = {label: number for number, label in enumerate(shown)}
    matrix = np.zeros((len(shown), len(shown)), np.int64)
    for label, called, count in tally.counts:
        matrix[place[label], place[called]] = count
    return matrix


def _panel(axes: Axes, matrix: NDArray[np.int64]) -> None:
    """The darker a cell, the larger its share of the row."""
    size = len(matrix)
    axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal")
    for row, column in zip(*matrix.nonzero(), strict=True):
        portion = float(matrix[row, column] / matrix[row].sum())
        cell = Rectangle((column, row), 1, 1, facecolor=BLUE, alpha=DARKEST * portion, linewidth=0)
        axes.add_patch(cell)
    if size <= MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(matrix):
            axes.text(column + 0.5, row + 0.5, f"{count}", ha="center", va="center", color=INK)


def _grid(tally: Tally, names: Sequence[str]) -> Grid:
    labels = sorted(tally.held.keys() | tally.called.keys())
    rows = [
        [
            text(names[label] if label < len(names) else str(label)),
            number(tally.held[label]),
            number(tally.called[label]),
            number(tally.right[label]),
            share(tally.sensitivity(label)),
            share(tally.specificity(label)),
        ]
        for label in labels[:MOST_ROWS]
    ]
    return Grid(
        "Test samples of all clients, class by class",
        ["class", "samples", "predicted", "correctly", "sensitivity", "specificity"],
        rows,
        shortened(len(labels), "classes", "the models' cards"),
    )
