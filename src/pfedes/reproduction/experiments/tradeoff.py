"""Figure 5: accuracy, communication and computation until a target is reached."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pfedes.formatting import count, measured
from pfedes.report.figures import STYLE, method_style, plain_log_scale
from pfedes.reproduction.experiment import Exhibit, Experiment, Results
from pfedes.reproduction.experiments.tables import cells, setting
from pfedes.reproduction.plotting import leave_empty
from pfedes.reproduction.published import published
from pfedes.reproduction.record import Record
from pfedes.reproduction.scenario import DATA, NAMES, SCENARIOS, label
from pfedes.results.summary import Row, until
from pfedes.results.table import Table

METHODS = ("fedproto", "pfedes")
STEP = 0.05


@dataclass(frozen=True)
class Race:
    """FedProto and pFedES on their way to one accuracy."""

    data: str
    clients: int
    paper_target: float
    target: float | None  # the paper's where both reach it, else the highest step that both do
    records: dict[str, Record]

    def costs(self, method: str, target: float) -> dict[str, float | int | None]:
        return until(target, self.records[method].rounds)

    def ratio(self, what: str) -> float | None:
        """How many times more FedProto needs than pFedES."""
        if self.target is None:
            return None
        ours, theirs = (self.costs(method, self.target)[what] for method in ("pfedes", "fedproto"))
        return float(theirs) / float(ours) if ours and theirs else None

    def ratio_per_round(self, what: str) -> float:
        """How many times more FedProto takes in an average round."""
        ours, theirs = (
            sum(spent_in(row, what) for row in record.rounds) / len(record.rounds)
            for record in (self.records["pfedes"], self.records["fedproto"])
        )
        return float(theirs / ours)


def spent_in(row: Row, what: str) -> float:
    """What a round took; floats are counted both ways."""
    counted = {**row, "round": 1, "floats": row["floats_down"] + row["floats_up"]}
    return float(counted[what])


def races(results: Results) -> list[Race]:
    """Every panel of the figure whose two runs are there."""
    found = []
    for data in DATA:
        for clients in SCENARIOS:
            records = {
                method: record
                for method in METHODS
                if (record := results.record(setting(method, data, clients, homogeneous=False)))
            }
            if len(records) == len(METHODS):
                wanted = target_of(data, clients)
                target = common_target(wanted, list(records.values()))
                found.append(Race(data, clients, wanted, target, records))
    return found


def target_of(data: str, clients: int) -> float:
    column = DATA[data] if data == "cifar10" else f"{DATA[data]}, N={clients}"
    percent = published("Section 6.2", "target accuracy", column)
    assert percent is not None, "the paper gives every target"
    return percent / 100


def common_target(wanted: float, records: Sequence[Record]) -> float | None:
    """The wanted accuracy, or the highest multiple of 5 % that all reached, if any."""
    best = min(max(row["accuracy"] for row in record.rounds) for record in records)
    if best >= wanted:
        return wanted
    return round(math.floor(best / STEP + 1e-9) * STEP, 2) or None


def show(results: Results) -> Exhibit:
    """Bubbles, the costs behind them, and the two ratios apart."""
    found = races(results)
    costs, ratios = [], []
    for race in found:
        head = [DATA[race.data], str(race.clients), f"{race.paper_target:.0%}"]
        head.append("-" if race.target is None else f"{race.target:.0%}")
        for method in METHODS:
            reached = None if race.target is None else race.costs(method, race.target)
            record = race.records[method]
            costs.append(
                [
                    NAMES[method],
                    *head,
                    f"{100 * record.accuracy:.2f}",
                    *(count(reached[what]) if reached else "-" for what in COSTS),
                ]
            )
        ratios.append(
            [
                *head,
                *(f"{race.ratio_per_round(what):.2f}" for what in ("floats", "flops")),
                *(times(race.ratio(what)) for what in COSTS),
            ]
        )
    tables = {
        "tradeoff": Table(
            ["method", *SCENARIO, "accuracy (%)", *UNTIL],
            costs,
        ),
        "ratios": Table(
            [*SCENARIO, "payload per round", "FLOP per round", *UNTIL],
            ratios,
            [
                "FedProto's figure over pFedES'. The paper gives 224 for floats and 5.85 for FLOP "
                "without naming the scenario. Floats until the target are about payload per round "
                "times rounds (FedProto is sent nothing in round 1, and its means are over all "
                "rounds): only the first is a property of what is sent.",
            ],
        ),
    }
    notes = [
        "The target is the paper's where both methods reach it within the rounds that were run, "
        "else the highest multiple of 5 % that both reach.",
        "Floats are counted in both directions and over all clients. FedProto sends and receives "
        "the prototypes of a client's own classes only.",
    ]
    return Exhibit(tables, {"tradeoff": bubbles(found, results)}, notes)


COSTS = ("round", "floats", "flops")
SCENARIO = ("data", "N", "paper's target", "target")
UNTIL = ("rounds until", "floats until", "FLOP until")


def times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def bubbles(found: Sequence[Race], results: Results) -> Figure:
    """Accuracy over floats until the target, the bubble's area the FLOPs until then."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.4))
        for place, (axes, data) in enumerate(zip(figure.subplots(1, len(DATA)), DATA, strict=True)):
            points = [
                (method, f"N={race.clients}, {race.target:.0%}", reached, race.records[method])
                for race in found
                if race.data == data and race.target is not None
                for method in METHODS
                for reached in [race.costs(method, race.target)]
            ]
            most = max((float(cost["flops"] or 0) for _, _, cost, _ in points), default=1.0)
            for method, name, cost, record in points:
                area = 900 * float(cost["flops"] or 0) / most + 12  # in square points
                axes.scatter(
                    [float(cost["floats"] or 1)],
                    [100 * record.accuracy],
                    s=area,
                    color=method_style(method)["color"],
                    alpha=0.55,
                    linewidths=0,
                )
                side = 1 if method == METHODS[0] else -1  # away from the other of its scenario
                axes.annotate(
                    name,
                    (float(cost["floats"] or 1), 100 * record.accuracy),
                    xytext=(side * (math.sqrt(area) / 2 + 2), 0),
                    textcoords="offset points",
                    fontsize=8,
                    color=method_style(method)["color"],
                    ha="left" if side > 0 else "right",
                    va="center",
                )
            if not points:
                leave_empty(axes)
            axes.set_xscale("log")
            axes.margins(0.7, 0.3)  # room for the names
            plain_log_scale(axes)
            axes.set_xlabel("floats until the target, both ways")
            title = label(data, 0, results.scale.sources).removesuffix(", N=0")
            if points:
                title += f" (largest bubble: {measured(most, 'FLOP')})"
            axes.set_title(title, fontsize=9)
            if place == 0:
                axes.set_ylabel("accuracy at the end (%)")
        handles = [
            Line2D([], [], linestyle="", marker="o", color=method_style(method)["color"])
            for method in METHODS
        ]
        figure.legend(
            handles,
            [NAMES[method] for method in METHODS],
            title="beside N the target; area: FLOP until it is reached",
            title_fontsize=8,
            fontsize=8,
            loc="outside lower center",
            ncols=2,
            frameon=False,
        )
    return figure


TRADEOFF = Experiment(
    name="tradeoff",
    title="Accuracy, communication and computation until a target",
    source="Figure 5",
    settings=lambda scale: cells(homogeneous=False, methods=METHODS),
    show=show,
)
