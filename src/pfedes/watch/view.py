"""A run as the page shows it: plain, bounded data, made of what `Run` read and checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pfedes.core.scores import Scores
from pfedes.formatting import WITHHELD, clock, computed, count, listed, percent
from pfedes.results.classwise import warning_of
from pfedes.results.run import Run
from pfedes.results.summary import Row, worst_first
from pfedes.watch.bounded import (
    MOST_CLASSES,
    MOST_CLIENTS,
    MOST_TROUBLES,
    number,
    text,
    thinned,
)

COLUMNS = (
    ("run", False),
    ("state", False),
    ("round", True),
    ("accuracy", True),
    ("time left", True),
    ("floats sent", True),
    ("trouble", True),
    ("method", False),
    ("data", False),
    ("clients", True),
)
"""The columns of the overview: their headings, and whether they hold numbers."""

PACE = 10  # rounds whose mean time tells how long the others will take
SHORTEST_SILENCE = 60.0  # seconds without a commit before a run is called silent
FIRST_ROUND = 600.0  # the same, while it is not known how long a round takes
SLOWER = 5  # times the slowest of the last rounds

Cell = tuple[str, float | int | str | None]
"""The text of a cell, and its sort key; None comes last."""
Point = tuple[int, float | int | None]

NOTHING: tuple[Cell, ...] = (("-", None),) * (len(COLUMNS) - 2)


@dataclass(frozen=True)
class PageView:
    """The view of one run on the page, or the reason why there is none."""

    cells: tuple[Cell, ...]  # of COLUMNS, without the first two
    progress: tuple[int, int] = (0, 0)
    finished: bool = False
    silence: float = FIRST_ROUND  # seconds after the last commit from which on it is silent
    tiles: tuple[tuple[str, str], ...] = ()
    points: tuple[Point, ...] = ()
    clients: tuple[tuple[Cell, ...], ...] = ()
    more_clients: int = 0
    troubles: tuple[tuple[str, ...], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    warning: str = ""
    problem: str = ""
    begun: bool = True


def unreadable(reason: object) -> PageView:
    """A run that cannot be read now, and why."""
    return PageView(NOTHING, problem=text(reason))


def not_begun() -> PageView:
    """A federation whose participants are still joining: it has no run directory yet."""
    return PageView(NOTHING, begun=False)


def view_of(run: Run) -> PageView:
    """The view of a run. A StoreError if its rows are damaged."""
    with run.reading_rows():
        return _view_of(run)


def _view_of(run: Run) -> PageView:
    summary, rounds = run.summary, run.config.train.rounds
    done, accuracy = run.manifest.round, number(summary["mean_accuracy"])
    floats = number(summary["floats_down"] + summary["floats_up"])
    troubles = [row for row in run.clients if row["status"] != "ok"]
    failed_rounds = sum(row["status"] != "ok" for row in run.rounds)
    recent = [seconds for row in run.rounds[-PACE:] if (seconds := number(row["seconds"]))]
    left = sum(recent) / len(recent) * (rounds - done) if recent and not run.finished else None
    cells: tuple[Cell, ...] = (
        (f"{done} of {rounds}", done),
        (percent(accuracy), accuracy),
        ("-" if left is None else clock(left), left),
        (count(floats), floats),
        (f"{len(troubles):,}", len(troubles)),
        (text(summary["method"]), text(summary["method"])),
        (text(summary["dataset"]), text(summary["dataset"])),
        (f"{summary['clients']:,}", summary["clients"]),
    )
    tiles: tuple[tuple[str, str], ...] = (
        ("round", f"{done} of {rounds}"),
        ("mean accuracy over clients", percent(accuracy)),
        ("time left, at the pace of the last rounds", "-" if left is None else clock(left)),
        ("floats sent, both directions", count(floats)),
        ("computed by clients", computed(number(summary["flops"]))),
        ("time in rounds", clock(number(summary["seconds"]) or 0)),
        ("replies rejected or failed", f"{len(troubles):,}"),
        ("failed rounds", f"{failed_rounds:,}"),
    )
    standings = worst_first(run.manifest)
    return PageView(
        cells,
        (done, rounds),
        run.finished,
        max(SHORTEST_SILENCE, SLOWER * max(recent)) if recent else FIRST_ROUND,
        tiles,
        _points(run),
        tuple(
            (
                (name, name),
                _accuracy(standing.scores),
                (str(standing.version or "-"), standing.version or None),
            )
            for name, standing in standings[:MOST_CLIENTS]
        ),
        max(0, len(standings) - MOST_CLIENTS),
        _troubles(troubles),
        _facts(run, summary),
        text(warning_of(run)),
    )


def _accuracy(scores: Scores | None) -> Cell:
    if scores is None:
        return WITHHELD, None
    only = scores.test is not None and scores.test.only_class is not None
    words = percent(scores.accuracy) + (" (one class only)" if only else "")
    return words, number(scores.accuracy)


def _points(run: Run) -> tuple[Point, ...]:
    """The accuracy over rounds, before the first round too."""
    first = (0, number(run.manifest.initial_accuracy))
    return thinned([first, *((int(row["round"]), number(row["accuracy"])) for row in run.rounds)])


def _troubles(rows: Sequence[Row]) -> tuple[tuple[str, ...], ...]:
    """The latest first."""
    keys = ("round", "client", "status", "reason")
    return tuple(tuple(text(row[key]) for key in keys) for row in rows[: -MOST_TROUBLES - 1 : -1])


def _facts(run: Run, summary: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    facts = [
        ("directory", text(run.directory)),
        ("method", text(summary["method"])),
        ("data", text(summary["dataset"])),
        ("clients", f"{summary['clients']:,}"),
        ("asked in a round", str(run.config.train.selected(summary["clients"]))),
        ("seed", str(run.config.seed)),
    ]
    if names := run.class_names:
        shown = listed([text(name) for name in names], MOST_CLASSES)
        facts.append(("classes", f"{len(names):,}: {shown}"))
    if summary["best_round"] is not None:
        best = f"round {summary['best_round']} with {percent(number(summary['best_accuracy']))}"
        facts.append(("best by validation", best))
    return tuple(facts)
