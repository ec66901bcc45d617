"""Two rules of measuring: how far the best of many noisy means lies above the mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pfedes.report.figures import STYLE, method_style
from pfedes.reproduction.experiment import Exhibit, Experiment, Results
from pfedes.reproduction.experiments.tables import setting
from pfedes.reproduction.plotting import leave_empty, legend
from pfedes.reproduction.record import Record
from pfedes.reproduction.scale import Scale
from pfedes.reproduction.scenario import COMPARED, DATA, NAMES, SCENARIOS, Setting
from pfedes.results.table import Table

POPULATION = 100
ROUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
SELECTED = (5, 10, 20, 50)
DRAWS = 300
SEED = 0  # fixed: the same runs give the same page


def expected_excess(accuracies: Sequence[float], selected: int, rounds: int) -> float:
    """The largest of `rounds` means over `selected` of these clients, less the mean over all.

    The mean over 300 simulations in which every round draws new clients and no accuracy
    changes.
    """
    values = np.asarray(accuracies)
    generator = np.random.default_rng(SEED)
    largest = np.full(DRAWS, -np.inf)
    for _ in range(rounds):
        keys = generator.random((DRAWS, len(values)))
        chosen = np.argpartition(keys, selected - 1, axis=1)[:, :selected]
        largest = np.maximum(largest, values[chosen].mean(axis=1))
    return max(0.0, float(largest.mean() - values.mean()))  # all clients: rounding alone


@cache
def spreads(selected: int) -> list[float]:
    """The excess for each number of rounds, in standard deviations over normal clients."""
    quantiles = np.random.default_rng(SEED).standard_normal(POPULATION)
    clients = ((quantiles - quantiles.mean()) / quantiles.std()).tolist()
    return [expected_excess(clients, selected, rounds) for rounds in ROUNDS]


@dataclass(frozen=True)
class Gap:
    """One run by both rules, in percent."""

    method: str
    data: str
    clients: int
    mean: float
    selected: float
    computed: float  # what the selection alone would add


def gaps(results: Results) -> list[Gap]:
    """Every cell of the heterogeneous table with seed 0 that was run."""
    return [
        gap_of(record, cell) for cell in wanted(results.scale) if (record := results.record(cell))
    ]


def gap_of(record: Record, cell: Setting) -> Gap:
    best = record.best_selected
    assert best is not None, "a finished run has a round with answers"
    accuracies = record.summary["accuracies"]
    selected = max(1, round(cell.participation * len(accuracies)))
    return Gap(
        cell.method,
        cell.data,
        cell.clients,
        100 * record.accuracy,
        100 * best,
        100 * expected_excess(accuracies, selected, len(record.rounds)),
    )


def show(results: Results) -> Exhibit:
    """What selection alone would add, computed and beside it what was measured."""
    found = gaps(results)
    rows = [
        [
            NAMES[gap.method],
            DATA[gap.data],
            str(gap.clients),
            f"{gap.mean:.2f}",
            f"{gap.selected:.2f}",
            f"{gap.selected - gap.mean:+.2f}",
            f"{gap.computed:+.2f}",
        ]
        for gap in found
    ]
    columns = ["method", "data", "N", "all clients (%)", "best selected (%)"]
    columns += ["best selected is above by", "selection alone adds"]
    notes = [
        "All clients: mean test accuracy over all N clients after the last round. Best selected: "
        "the rule of the authors' script, the largest over rounds of the mean over the clients "
        "selected in that round, right after their training.",
        "Selection alone adds: computed from a run's final accuracies as if no client learned any "
        f"more, the mean over {DRAWS} simulations of T rounds that draw C N of N clients. What was "
        "measured above that comes from rounds before the last and from clients that have just "
        "trained, while all clients include those that trained long ago or never.",
        f"The left panel has N = {POPULATION} clients with normally distributed accuracies; its "
        "unit is their standard deviation.",
    ]
    return Exhibit({"rules": Table(columns, rows)}, {"rules": figure(found)}, notes)


def figure(found: Sequence[Gap]) -> Figure:
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(7.2, 3.4))
        left, right = drawn.subplots(1, 2)
        for selected, shade in zip(SELECTED, np.linspace(0.7, 0.0, len(SELECTED)), strict=True):
            left.plot(ROUNDS, spreads(selected), color=str(shade), linewidth=1.4)
            left.annotate(
                f" K={selected}", (ROUNDS[-1], spreads(selected)[-1]), va="center", fontsize=8
            )
        left.set_xscale("log")
        left.set_xlim(right=1100)
        left.set_xlabel("rounds T")
        left.set_ylabel("best selected above the mean\n(standard deviations over clients)")
        left.set_title("computed, N = 100", fontsize=9)
        _measured(right, found)
        legend(drawn, [right])
    return drawn


def _measured(axes: Axes, found: Sequence[Gap]) -> None:
    axes.set_title("runs", fontsize=9)
    if not found:
        leave_empty(axes)
        return
    for method in dict.fromkeys(gap.method for gap in found):
        mine = [gap for gap in found if gap.method == method]
        style = {**method_style(method), "linestyle": "none"}
        x, y = [gap.computed for gap in mine], [gap.selected - gap.mean for gap in mine]
        axes.plot(x, y, label=NAMES[method], markersize=5, **style)
    most = max(max(gap.computed, gap.selected - gap.mean) for gap in found)
    axes.plot([0, most], [0, most], color="0.6", linewidth=1, zorder=0)
    axes.set_xlabel("selection alone adds (points)")
    axes.set_ylabel("best selected above\nall clients (points)")


def wanted(_: Scale) -> list[Setting]:
    return [
        setting(method, data, clients, homogeneous=False)
        for data in DATA
        for clients in sorted(SCENARIOS, reverse=True)
        for method in COMPARED
    ]


RULES = Experiment(
    name="rules",
    title="What the rule of measuring adds",
    source="Not in the paper",
    settings=wanted,
    show=show,
)
