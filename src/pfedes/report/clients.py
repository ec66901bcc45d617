"""The spread of the clients' accuracies, and the least accurate clients by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pfedes.core.measures import Tally
from pfedes.core.scores import Scores
from pfedes.formatting import WITHHELD
from pfedes.report.grid import MOST_ROWS, Grid, GridCell, flops, number, share, shortened, text
from pfedes.results.classwise import one_class_words
from pfedes.results.summary import total, worst_first

if TYPE_CHECKING:
    from pfedes.population.simulation import Simulation
    from pfedes.results.run import Run
    from pfedes.results.summary import Row


@dataclass(frozen=True)
class Spread:
    """The spread of the test accuracies of all clients."""

    worst: float
    tenth: float  # a tenth of the clients is no better
    median: float
    mean: float
    best: float
    std: float

    @classmethod
    def of(cls, accuracies: Sequence[float]) -> "Spread":
        worst, tenth, median, best = np.quantile(accuracies, [0, 0.1, 0.5, 1]).tolist()
        return cls(
            worst, tenth, median, float(np.mean(accuracies)), best, float(np.std(accuracies))
        )


def client_grid(run: "Run", simulation: "Simulation | None") -> Grid:
    """All clients, worst-off first; of many only the worst-off."""
    work = _work_of(run.clients)
    standings = worst_first(run.manifest)
    classwise = any(scores.test is not None for scores in run.manifest.scores.values())
    rows: list[list[GridCell]] = []
    for name, standing in standings[:MOST_ROWS]:
        scores, done = standing.scores, work.get(name, _Work())
        row = [text(name), *_measured(scores)]
        if simulation is not None:
            row.append(text(simulation.population.architectures[name]))
            row.append(number(simulation.population.sizes[name]))
        row += [number(done.rounds), number(done.floats), flops(done.flops)]
        if classwise:
            row += _class_by_class(scores.test if scores else None, run.class_names)
        rows.append(row)
    known = ["model", "train samples"] if simulation is not None else []
    return Grid(
        "Clients, worst-off first",
        [
            *("client", "test accuracy", "correct", "validation", *known),
            *("rounds", "floats sent", "FLOP"),
            *(CLASS_BY_CLASS if classwise else []),
        ],
        rows,
        shortened(len(standings), "clients, the worst-off", "summary.json and clients.jsonl"),
        ascending=1,
    )


CLASS_BY_CLASS = ("balanced accuracy", "macro F1", "AUC", "baseline", "note")


def _measured(scores: Scores | None) -> list[GridCell]:
    if scores is None:
        return [text(WITHHELD)] * 3
    right = f"{scores.test_correct} of {scores.test_total}"
    return [
        share(scores.accuracy),
        GridCell(right, scores.test_correct),
        share(scores.val_accuracy),
    ]


def _class_by_class(tally: Tally | None, names: Sequence[str]) -> list[GridCell]:
    values = [None] * 4 if tally is None else [
        *(tally.balanced_accuracy, tally.macro_f1, tally.auc, tally.baseline)
    ]  # fmt: skip
    return [*map(share, values), text(one_class_words(tally, names))]


@dataclass
class _Work:
    rounds: int = 0  # in which it was accepted
    floats: int = 0
    flops: int | None = 0  # None where the client withholds it


def _work_of(rows: "Sequence[Row]") -> dict[str, _Work]:
    work: dict[str, _Work] = {}
    for row in rows:
        done = work.setdefault(row["client"], _Work())
        done.rounds += row["status"] == "ok"
        done.floats += row["floats_up"]
        done.flops = total([done.flops, row["flops"]])
    return work
