"""Figures 8, 9 and 10: accuracy when one thing is varied at N = 100."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import matplotlib as mpl
from matplotlib.figure import Figure

from pfedes.report.figures import STYLE, method_style
from pfedes.reproduction.experiment import Exhibit, Experiment, Results
from pfedes.reproduction.plotting import leave_empty
from pfedes.reproduction.scale import Scale
from pfedes.reproduction.scenario import DATA, NAMES, Setting, label, option
from pfedes.results.table import Table

Vary = Callable[[Setting, float], Setting]


@dataclass(frozen=True)
class Axis:
    """One quantity that is varied, for some methods, in one panel per data set."""

    name: str
    symbol: str
    values: dict[str, Sequence[float]]  # per data set
    vary: Vary
    methods: tuple[str, ...] = ("fedproto", "pfedes")

    def setting(self, method: str, data: str, value: float) -> Setting:
        return self.vary(Setting(method, data), value)

    def settings(self) -> list[Setting]:
        return [
            self.setting(method, data, value)
            for data, values in self.values.items()
            for value in values
            for method in self.methods
        ]

    def accuracies(self, results: Results, method: str, data: str) -> dict[float, float]:
        """What is known of one line of the figure, in percent."""
        found = {}
        for value in self.values[data]:
            mean = results.accuracy([self.setting(method, data, value)], judged=False).mean
            if mean is not None:
                found[value] = mean
        return found


NON_IID = Axis(
    "classes per client",
    "c",
    {"cifar10": (2, 4, 6, 8, 10), "cifar100": (10, 30, 50, 70, 90, 100)},
    lambda setting, value: replace(setting, classes=int(value)),
)
PARTICIPATION = Axis(
    "share of clients in a round",
    "C",
    dict.fromkeys(DATA, (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)),
    lambda setting, value: replace(setting, participation=value),
)
MU = Axis(
    "weight of the enhanced data",
    "mu",
    dict.fromkeys(DATA, (0.1, 0.2, 0.3, 0.4, 0.5)),
    lambda setting, value: replace(setting, options=option(mu=value)),
    ("pfedes",),
)
EXTRACTOR_EPOCHS = Axis(
    "epochs of the extractor",
    "E_fe",
    dict.fromkeys(DATA, (5, 10, 15, 20)),
    lambda setting, value: replace(setting, options=option(extractor_epochs=int(value))),
    ("pfedes",),
)


def experiment(name: str, title: str, source: str, axes: Sequence[Axis]) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        source=source,
        settings=lambda scale: [one for axis in axes for one in axis.settings()],
        show=lambda results: show(results, axes, name),
    )


def show(results: Results, axes: Sequence[Axis], name: str) -> Exhibit:
    """A panel and a table per quantity and data set."""
    tables = {}
    for axis in axes:
        for data, values in axis.values.items():
            rows = []
            for value in values:
                found = [
                    results.accuracy([axis.setting(method, data, value)], judged=False)
                    for method in axis.methods
                ]
                row = [f"{value:g}", *map(str, found)]
                if len(found) == 2:
                    row.append(found[1].minus(found[0].mean))
                rows.append(row)
            columns = [axis.symbol, *(NAMES[method] for method in axis.methods)]
            columns += ["difference"] if len(axis.methods) == 2 else []
            tables[f"{axis.symbol.lower()}-{data}"] = Table(columns, rows)
    notes = [
        f"{axis.symbol} is the paper's {axis.name}; the paper shows these results as curves, "
        "without numbers."
        for axis in axes
    ]
    for axis in axes:
        if len(set(lengths := epochs(results.scale, axis))) > 1:
            notes.append(
                f"Epochs that a client learns on average, by {axis.symbol}: "
                + ", ".join(f"{length:.1f}" for length in lengths)
                + "."
            )
    return Exhibit(tables, {name: lines(results, axes)}, notes)


def epochs(scale: Scale, axis: Axis) -> list[float]:
    """What a client learns on average at each value of an axis."""
    trains = [
        scale.configs(axis.setting("pfedes", "cifar10", value))[0].train
        for value in axis.values["cifar10"]
    ]
    return [train.rounds * train.participation * train.epochs for train in trains]


def lines(results: Results, axes: Sequence[Axis]) -> Figure:
    panels = [(axis, data) for axis in axes for data in axis.values]
    with mpl.rc_context(STYLE):
        rows = len(axes)
        figure = Figure(figsize=(7.2, 2.5 * rows + 0.3))
        grid = list(figure.subplots(rows, len(DATA), squeeze=False).flat)
        for (axis, data), panel in zip(panels, grid, strict=True):
            for method in axis.methods:
                found = axis.accuracies(results, method, data)
                panel.plot(
                    list(found), list(found.values()), label=NAMES[method], **method_style(method)
                )
            if not any(len(line.get_xdata()) for line in panel.lines):
                leave_empty(panel)
            panel.set_xticks(list(axis.values[data]))
            panel.set_xlabel(f"{axis.symbol}, {axis.name}")
            title = label(data, 100, results.scale.sources)
            panel.set_title(title, fontsize=9)
            panel.margins(0.08, 0.2)
        for panel in grid[:: len(DATA)]:
            panel.set_ylabel("mean accuracy (%)")
        if len(axes[0].methods) > 1:
            figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


NONIID = experiment("noniid", "Robustness to non-IID data", "Figure 8", [NON_IID])
PARTICIPATING = experiment(
    "participation", "Robustness to client participation", "Figure 9", [PARTICIPATION]
)
SENSITIVITY = experiment(
    "sensitivity",
    "Sensitivity to mu and E_fe",
    "Figure 10",
    [MU, EXTRACTOR_EPOCHS],
)
