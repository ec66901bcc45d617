"""Figures 3 and 4: accuracy against rounds, and its distribution over clients."""

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pfedes.report.figures import STYLE, distinct_styles
from pfedes.reproduction.experiment import Exhibit, Experiment, Results
from pfedes.reproduction.experiments.tables import cells, setting
from pfedes.reproduction.plotting import leave_empty, legend
from pfedes.reproduction.scenario import COMPARED, DATA, SCENARIOS, label, name_in_print
from pfedes.results.table import Table


def curves(results: Results) -> Exhibit:
    """A panel per data set and N, a line per method."""
    rows = []
    methods = results.scale.compared(COMPARED)
    styles = dict(zip(methods, distinct_styles(methods), strict=True))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.6))
        grid = figure.subplots(len(DATA), len(SCENARIOS), squeeze=False)
        for line, data in enumerate(DATA):
            for place, clients in enumerate(SCENARIOS):
                axes = grid[line][place]
                for method in methods:
                    cell = setting(method, data, clients, homogeneous=False)
                    if (record := results.record(cell)) is None:
                        continue
                    accuracies = [record.summary["initial_accuracy"]]
                    accuracies += [row["accuracy"] for row in record.rounds]
                    axes.plot(
                        [100 * value for value in accuracies],
                        label=name_in_print(method),
                        markevery=max(1, len(accuracies) // 6),
                        markersize=3.5,
                        linewidth=1.2,
                        **styles[method],
                    )
                    rows.append(
                        [
                            name_in_print(method),
                            DATA[data],
                            str(clients),
                            *(f"{100 * at(accuracies, share):.2f}" for share in (0.25, 0.5, 1)),
                        ]
                    )
                axes.set_title(label(data, clients, results.scale.sources), fontsize=9)
                axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
                if not axes.lines:
                    leave_empty(axes)
        for axes in grid[-1]:
            axes.set_xlabel("round")
        for line in grid:
            line[0].set_ylabel("mean accuracy (%)")
        legend(figure, grid.flat)
    columns = ["method", "data", "N", *(f"after {part}" for part in ("1/4", "1/2", "all"))]
    return Exhibit({"convergence": Table(columns, rows)}, {"convergence": figure})


def at(accuracies: list[float], share: float) -> float:
    """The accuracy after a share of the rounds."""
    return accuracies[round(share * (len(accuracies) - 1))]


def boxes(results: Results) -> Exhibit:
    """Boxes of the accuracies of those who learned; '+' is their mean, as in the paper."""
    rows = []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 5.0))
        grid = figure.subplots(len(DATA), len(SCENARIOS), squeeze=False, sharey="row")
        for line, data in enumerate(DATA):
            for place, clients in enumerate(SCENARIOS):
                axes = grid[line][place]
                found = {
                    name_in_print(method): [100 * value for value in record.learned]
                    for method in results.scale.compared(COMPARED)
                    if (record := results.record(setting(method, data, clients, homogeneous=False)))
                }
                if not found:
                    leave_empty(axes)
                else:
                    axes.boxplot(
                        found.values(),
                        tick_labels=found.keys(),
                        showmeans=True,
                        meanprops={"marker": "+", "markeredgecolor": "#d55e00", "markersize": 8},
                        medianprops={"color": "#0072b2"},
                        flierprops={"markersize": 3},
                        widths=0.6,
                    )
                axes.tick_params(axis="x", rotation=90, labelsize=8)
                axes.set_title(label(data, clients, results.scale.sources), fontsize=9)
                for name, values in found.items():
                    rows.append([name, DATA[data], str(clients), str(len(values)), *spread(values)])
        for line in grid:
            line[0].set_ylabel("accuracy of a client (%)")
            for axes in [axes for axes in line if axes.has_data()][:1]:
                axes.tick_params(labelleft=True)  # where the row's first panel is empty
    columns = ["method", "data", "N", "clients", "mean", "standard deviation", "worst"]
    columns += ["quartile 1", "median", "quartile 3", "best"]
    notes = [
        "Of those clients that were ever selected; the others' models are as they began. Standard "
        "deviations are over clients.",
        "A client of 60 test images, as of CIFAR with N=100, has a standard error of 4 points at "
        "90 % and of 6 at 50 %.",
    ]
    return Exhibit({"individual": Table(columns, rows)}, {"individual": figure}, notes)


def spread(values: list[float]) -> list[str]:
    """Mean, standard deviation, and the five numbers of a box."""
    numbers = [np.mean(values), np.std(values), *np.percentile(values, [0, 25, 50, 75, 100])]
    return [f"{number:.2f}" for number in numbers]


CONVERGENCE = Experiment(
    name="convergence",
    title="Accuracy against communication rounds",
    source="Figure 3",
    settings=lambda scale: cells(homogeneous=False, methods=scale.compared(COMPARED)),
    show=curves,
    compares=True,
)
INDIVIDUAL = Experiment(
    name="individual",
    title="Distribution of the clients' accuracies",
    source="Figure 4",
    settings=lambda scale: cells(homogeneous=False, methods=scale.compared(COMPARED)),
    show=boxes,
    compares=True,
)
