"""Tables 2 and 3: the accuracy of seven methods in six scenarios."""

import math
from collections.abc import Sequence
from functools import partial

from pfedes.formatting import counted
from pfedes.reproduction.experiment import NOT_RUN, Accuracy, Exhibit, Experiment, Results
from pfedes.reproduction.published import published
from pfedes.reproduction.record import RULE, Record, paired
from pfedes.reproduction.scale import Scale
from pfedes.reproduction.scenario import COMPARED, DATA, NAMES, SCENARIOS, Setting, name_in_print
from pfedes.results.table import Table

SEEDS = (0, 1, 2)


def setting(method: str, data: str, clients: int, *, homogeneous: bool) -> Setting:
    """A cell of the tables."""
    return Setting(
        method,
        data,
        clients,
        SCENARIOS[clients],
        homogeneous=homogeneous,
        tuned=True,
    )


def seeds_of(cell: Setting) -> list[Setting]:
    """Once with every seed where the question is close, once elsewhere."""
    close = cell.method in ("pfedes", "standalone", "fedproto")
    where = not cell.homogeneous and (cell.data, cell.clients) == ("cifar10", 100)
    return [cell.with_seed(seed) for seed in (SEEDS if close and where else SEEDS[:1])]


def cells(*, homogeneous: bool, methods: Sequence[str] = COMPARED) -> list[Setting]:
    """All cells of a table, the closest question first."""
    return [
        setting(method, data, clients, homogeneous=homogeneous)
        for data in DATA
        for clients in sorted(SCENARIOS, reverse=True)
        for method in methods
    ]


def wanted(scale: Scale, *, homogeneous: bool) -> list[Setting]:
    return [
        one
        for cell in cells(homogeneous=homogeneous, methods=scale.compared(COMPARED))
        for one in seeds_of(cell)
    ]


def from_paper(method: str, data: str, clients: int, *, homogeneous: bool) -> float | None:
    """What the paper's table says."""
    where = "Table 2" if homogeneous else "Table 3"
    column = f"N={clients}, C={SCENARIOS[clients]:.0%}, {DATA[data]}"
    return published(where, NAMES[method], column) if method in COMPARED else None


def show(results: Results, *, homogeneous: bool) -> Exhibit:
    """A table per data set: the paper's value, ours, and the difference."""
    tables, notes, seeds, not_run = {}, [RULE], set(), 0
    for data, name in DATA.items():
        rows = []
        for method in results.scale.compared(COMPARED):
            row = [name_in_print(method)]
            for clients in SCENARIOS:
                cell = setting(method, data, clients, homogeneous=homogeneous)
                theirs = from_paper(method, data, clients, homogeneous=homogeneous)
                ours = results.accuracy(seeds_of(cell))
                seeds.add(len(ours.seeds))
                row += ["-" if theirs is None else f"{theirs:.2f}", str(ours), ours.minus(theirs)]
                if ours.reason == NOT_RUN:
                    not_run += 1
                elif ours.reason:
                    notes.append(f"{name_in_print(method)}, {name}, N={clients}: {ours.reason}.")
            rows.append(row)
        columns = [
            "method",
            *(f"N={n}: {what}" for n in SCENARIOS for what in ("paper", "ours", "difference")),
        ]
        tables[data] = Table(columns, rows, [best_note(results, data, homogeneous=homogeneous)])
        tables[f"{data}-selected"] = by_their_rule(results, data, homogeneous=homogeneous)
        tables[f"{data}-differences"] = differences(results, data, homogeneous=homogeneous)
    if not_run:
        notes.append(f"{counted(not_run, 'empty cell')}: {NOT_RUN}.")
    if max(seeds) > 1:
        notes.append(
            "± is the standard deviation over the seeds 0, 1, 2, or those of them that have been "
            "run; elsewhere seed 0."
        )
    else:
        notes.append("Seed 0.")
    return Exhibit(tables, notes=notes)


def by_their_rule(results: Results, data: str, *, homogeneous: bool) -> Table:
    """The paper's value beside ours as the authors' script measures, and how close they are."""
    rows, close = [], dict.fromkeys(CLOSENESS.values(), 0)
    for method in results.scale.compared(COMPARED):
        row = [name_in_print(method)]
        for clients in SCENARIOS:
            cell = setting(method, data, clients, homogeneous=homogeneous)
            theirs = from_paper(method, data, clients, homogeneous=homogeneous)
            ours = results.selected(seeds_of(cell))
            how = closeness(ours.mean, theirs)
            if how:
                close[how] += 1
            row += ["-" if theirs is None else f"{theirs:.2f}", str(ours), ours.minus(theirs), how]
        rows.append(row)
    what = ("paper", "by its rule", "difference", "points apart")
    columns = ["method", *(f"N={n}: {part}" for n in SCENARIOS for part in what)]
    listed = ", ".join(f"{how} in {counted(number, 'cell')}" for how, number in close.items())
    return Table(columns, rows, [SELECTED_NOTE, f"Points apart from the paper: {listed}."])


CLOSENESS = {1.0: "within 1", 3.0: "within 3", math.inf: "further"}
SELECTED_NOTE = (
    "By its rule: the largest over rounds of the mean test accuracy, right after local training, "
    "of the clients selected in that round, as the authors' script prints it. It is chosen by "
    "test, and of few clients: see docs/reproduce.md."
)


def closeness(ours: float | None, theirs: float | None) -> str:
    """How many points lie between two accuracies in percent, as they are printed."""
    if ours is None or theirs is None:
        return ""
    apart = round(abs(ours - theirs), 2)
    return next(words for most, words in CLOSENESS.items() if apart <= most)


def reference(results: Results, data: str, clients: int, *, homogeneous: bool) -> str | None:
    """The method that the others are compared with: the one asked for, or the best baseline."""
    compared = results.scale.compared(COMPARED)
    methods = [results.against] if results.against else [m for m in compared if m != "pfedes"]
    found = {
        method: mean
        for method in methods
        if (cell := setting(method, data, clients, homogeneous=homogeneous))
        and (mean := results.accuracy([cell]).mean) is not None
    }
    return max(found, key=lambda method: found[method], default=None)


def differences(results: Results, data: str, *, homogeneous: bool) -> Table:
    """Mean differences to one method per scenario, with intervals over clients and seeds."""

    def records(method: str, clients: int) -> list[Record]:
        return results.records(seeds_of(setting(method, data, clients, homogeneous=homogeneous)))

    others = {n: reference(results, data, n, homogeneous=homogeneous) for n in SCENARIOS}
    rows = []
    for method in results.scale.compared(COMPARED):
        row = [name_in_print(method)]
        for clients, other in others.items():
            gap = paired(records(method, clients), records(other, clients)) if other else None
            if other == method:
                row += ["", "reference"]
            else:
                row += [str(gap), gap.verdict] if gap else ["", ""]
        rows.append(row)
    columns = ["method"]
    for clients, other in others.items():
        name = name_in_print(other) if other else "nobody"
        columns += [f"N={clients}: against {name}", f"N={clients}: verdict"]
    return Table(columns, rows, [PAIRED_NOTE])


PAIRED_NOTE = (
    "Against: the mean difference in points, client by client, over the seeds that both have, "
    "with a 95 % bootstrap interval over clients and seeds. Not decided: the interval contains 0."
)


def best_note(results: Results, data: str, *, homogeneous: bool) -> str:
    """The best method of our runs in each scenario, with the seed that all of them have."""
    parts = []
    for clients in SCENARIOS:
        found: dict[str, Accuracy] = {
            method: results.accuracy([setting(method, data, clients, homogeneous=homogeneous)])
            for method in results.scale.compared(COMPARED)
        }
        ranked = sorted(
            ((mean, name) for name, value in found.items() if (mean := value.mean) is not None),
            reverse=True,
        )
        if ranked:
            highest = f"{ranked[0][0]:.2f}"
            first = [name_in_print(name) for mean, name in ranked if f"{mean:.2f}" == highest]
            parts.append(f"N={clients}: {' and '.join(first)} ({highest})")
    return f"Best of ours with seed 0: {', '.join(parts)}." if parts else "No runs yet."


HOMOGENEOUS, HETEROGENEOUS = (
    Experiment(
        name=f"table-{kind}",
        title=f"Average accuracy (%) with {what}",
        source=source,
        settings=partial(wanted, homogeneous=kind == "homogeneous"),
        show=partial(show, homogeneous=kind == "homogeneous"),
        compares=True,
    )
    for kind, what, source in (
        ("homogeneous", "CNN-1 at every client", "Table 2"),
        ("heterogeneous", "CNN-1 to CNN-5 at random", "Table 3"),
    )
)
