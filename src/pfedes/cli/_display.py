"""What people see: progress on standard error, results on standard output."""

import json as json_module
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from pfedes.cli._signals import Interrupted, interruptible
from pfedes.errors import FailedRunError, StoreError
from pfedes.federation.admission import Verdict
from pfedes.federation.estimate import Plan
from pfedes.federation.listener import Listener
from pfedes.federation.loop import Federation
from pfedes.formatting import clock, computed, count, percent
from pfedes.results.run import Run
from pfedes.results.summary import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def output() -> Console:
    """Standard output; a pipe gets whole lines, a terminal its own width."""
    # Without emoji: a method's name such as mine:Bug: is no code for a picture.
    width = None if sys.stdout.isatty() else 100
    return Console(width=width, highlight=False, markup=False, emoji=False)


def watch(begin: Callable[[Listener], Federation], *, quiet: bool, json: bool) -> None:
    """Runs a federation in sight of the user and prints its result."""
    listener = Listener() if quiet or json else Spectator()
    federation = begin(listener)
    try:
        with interruptible():
            run = federation.run()
    except KeyboardInterrupt:
        raise Interrupted(_how_to_resume(federation.directory)) from None
    finally:
        if isinstance(listener, Spectator):
            listener.stop()
    if json:
        print(json_module.dumps({**run.summary, "directory": str(run.directory)}, indent=2))
    elif quiet:
        print(run.directory)
    else:
        print_result(run)
    if run.rounds and not run.trained:
        raise FailedRunError(f"{run.why_untrained()}. The accuracies are those of untrained models")


def print_result(run: Run) -> None:
    """The closing table."""
    summary = run.summary
    best = f"{percent(summary['best_accuracy'])} (round {summary['best_round']}, by validation)"
    spread = f"{100 * summary['std_accuracy']:.2f} points standard deviation over clients"
    rows = {
        "method": f"{summary['method']} on {summary['dataset']}, {summary['clients']} clients",
        "accuracy": f"{percent(summary['mean_accuracy'])}, {spread}",
        "before training": percent(summary["initial_accuracy"]),
        "best round": best if summary["best_round"] is not None else "-",
        "sent": f"{count(summary['floats_down'])} floats down, "
        f"{count(summary['floats_up'])} floats up in {summary['rounds']} rounds",
        "computed": f"{computed(summary['flops'])} in {clock(summary['seconds'])}",
    }
    if "flops_server" in summary:
        rows["by the server"] = computed(summary["flops_server"])
    for target in summary["targets"]:
        reached = f"round {target['round']}, {count(target['floats'])} floats"
        rows[f"until {percent(target['accuracy'])}"] = (
            "not reached" if target["round"] is None else reached
        )
    if trouble := len(summary["rejected_uploads"]) + len(summary["failed_clients"]):
        rows["trouble"] = f"{trouble} uploads rejected or clients failed; see the report"
    if run.config.runtime.report:
        rows["report"] = str(run.directory / "report.html")
    output().print(facts(rows))


def facts(rows: Mapping[str, str]) -> Table:
    """Two columns: what, and its value."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def save_figure(figure: "Figure", path: Path) -> None:
    """Writes a figure in the format that its name ends with."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None
    except ValueError as error:
        raise StoreError(f"cannot write {path}: {str(error).splitlines()[0]}") from None


@contextmanager
def working() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for a long step outside a run."""
    spectator = Spectator()
    try:
        yield spectator.working
    finally:
        spectator.stop()


@contextmanager
def warned_before() -> Iterator[None]:
    """What users were warned of when they made a run is not said again whenever it is opened."""
    logger = logging.getLogger("pfedes")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class DoneColumn(ProgressColumn):
    """How much is done: as counted by who shows the bar, else in steps."""

    def render(self, task: Task) -> Text:
        steps = f"{task.completed:.0f}/{task.total:.0f}"
        return Text(task.fields["counted"] or steps)


class Spectator(Listener):
    """Bars on a terminal; elsewhere a line per round."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            DoneColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            speed_estimate_period=3600,  # seconds: rounds may take minutes
        )
        self._tasks: dict[str, TaskID] = {}
        self._rounds = 0
        self._began = time.monotonic()
        self._first = 0

    def stop(self) -> None:
        if self.bars.live.is_started:
            with suppress(OSError):  # the terminal may be closed
                self.bars.stop()

    def working(self, label: str, done: int, total: int) -> None:
        self.bar(label, done, total)
        if done >= total:
            self._hide(label)

    def planned(self, plan: Plan) -> None:
        self.console.print(
            f"a big run: about {clock(plan.seconds)} with {plan.manner}, "
            f"{count(plan.memory)}B of memory, up to {count(plan.disk)}B of disk"
        )
        self.console.print(
            f"estimated from {plan.measured}: {plan.client_seconds:.1f} s for one round"
        )
        if plan.disk > plan.free:
            self.console.print(f"warning: only {count(plan.free)}B are free on that disk")

    def started(self, run: Run) -> None:
        self._rounds = run.config.train.rounds
        self._first = run.manifest.round
        self._began = time.monotonic()
        if run.finished:
            self.console.print(f"{run.directory} is finished: {run.manifest.round} rounds")
            return
        verb = "resuming after" if self._first else "starting at"
        self.console.print(f"{verb} round {self._first} of {self._rounds} in {run.directory}")
        accuracy = run.rounds[-1]["accuracy"] if run.rounds else run.manifest.initial_accuracy
        self.bar("rounds", self._first, self._rounds, f"accuracy {percent(accuracy)}")

    def round_started(self, round: int, clients: Sequence[str]) -> None:
        self._hide("clients")
        self.bar("clients", 0, len(clients))

    def client_done(self, verdict: Verdict) -> None:
        if verdict.status != "ok":
            task = verdict.task
            self.console.print(
                f"round {task.round}: {task.client} {verdict.status}: {verdict.reason}"
            )
        if (bar := self._tasks.get("clients")) is not None:
            self.bars.advance(bar)

    def round_done(self, row: Row) -> None:
        note = f"accuracy {percent(row['accuracy'])}"
        self.bar("rounds", row["round"], self._rounds, note)
        if not self.console.is_terminal:
            spent = time.monotonic() - self._began
            left = spent / (row["round"] - self._first) * (self._rounds - row["round"])
            line = f"round {row['round']}/{self._rounds}  {note}  {row['seconds']:.1f} s"
            self.console.print(f"{line}  {clock(left)} left" if left else line)

    def bar(self, label: str, done: float, total: float, note: str = "", counted: str = "") -> None:
        """Shows how far something is, on a terminal; `counted` says it in words."""
        if not self.console.is_terminal:
            return
        if label not in self._tasks:
            self._tasks[label] = self.bars.add_task(label, total=total, note=note, counted="")
            self.bars.start()
        self.bars.update(
            self._tasks[label], completed=done, total=total, note=note, counted=counted
        )

    def _hide(self, label: str) -> None:
        if (bar := self._tasks.pop(label, None)) is not None:
            self.bars.remove_task(bar)


def _how_to_resume(directory: Path) -> str:
    if (directory / "state").is_dir():
        return f"stopped; 'pfedes resume {directory}' goes on after the last complete round"
    return "stopped before the first round; nothing was written"
