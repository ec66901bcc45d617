"""A listener that shows the progress of a run."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pfedes.api.bars import bars_here
from pfedes.federation.admission import Verdict
from pfedes.federation.estimate import Plan
from pfedes.federation.listener import Listener
from pfedes.formatting import clock, count, percent
from pfedes.privacy.budget import Prospect
from pfedes.results.run import Run
from pfedes.results.summary import Row
from pfedes.track.trackers import trackers


class Spectator(Listener):
    """Bars on a terminal and in a notebook; elsewhere a line per round."""

    def __init__(self) -> None:
        self.bars = bars_here()
        self._rounds = 0
        self._began = time.monotonic()
        self._first = 0

    def stop(self) -> None:
        self.bars.stop()

    def working(self, label: str, done: int, total: int) -> None:
        self.bar(label, done, total)
        if done >= total:
            self.bars.hide(label)

    def planned(self, plan: Plan) -> None:
        self.bars.say(
            f"a big run: about {clock(plan.seconds)} with {plan.manner}, "
            f"{count(plan.memory)}B of memory, up to {count(plan.disk)}B of disk"
        )
        measured = ", ".join(plan.measured)
        self.bars.say(f"estimated from {measured}: {plan.client_seconds:.1f} s for one round")
        if plan.disk > plan.free:
            self.bars.say(f"warning: only {count(plan.free)}B are free on that disk")

    def priced(self, prospect: Prospect) -> None:
        for line in prospect.lines():
            self.bars.say(line)

    def started(self, run: Run) -> None:
        self._rounds = run.config.train.rounds
        self._first = run.manifest.round
        self._began = time.monotonic()
        if run.finished:
            self.bars.say(f"{run.directory} is finished: {run.manifest.round} rounds")
            return
        verb = "resuming after" if self._first else "starting at"
        self.bars.say(f"{verb} round {self._first} of {self._rounds} in {run.directory}")
        accuracy = run.rounds[-1]["accuracy"] if run.rounds else run.manifest.initial_accuracy
        self.bar("rounds", self._first, self._rounds, f"accuracy {percent(accuracy)}")

    def round_started(self, round: int, clients: Sequence[str]) -> None:
        self.bars.hide("clients")
        self.bar("clients", 0, len(clients))

    def client_done(self, verdict: Verdict) -> None:
        if verdict.status != "ok":
            task = verdict.task
            self.bars.say(f"round {task.round}: {task.client} {verdict.status}: {verdict.reason}")
        self.bars.advance("clients")

    def round_done(self, row: Row) -> None:
        note = f"accuracy {percent(row['accuracy'])}"
        self.bar("rounds", row["round"], self._rounds, note)
        if not self.bars.moves:
            spent = time.monotonic() - self._began
            left = spent / (row["round"] - self._first) * (self._rounds - row["round"])
            line = f"round {row['round']}/{self._rounds}  {note}  {row['seconds']:.1f} s"
            self.bars.say(f"{line}  {clock(left)} left" if left else line)

    def finished(self, run: Run) -> None:
        self.bars.hide("clients")

    def bar(self, label: str, done: float, total: float, note: str = "", counted: str = "") -> None:
        """Shows how far something is, where bars move; `counted` says it in words."""
        self.bars.bar(label, done, total, note, counted)


@contextmanager
def working() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for a long step outside a run."""
    spectator = Spectator()
    try:
        yield spectator.working
    finally:
        spectator.stop()


class Listeners(Listener):
    """Several listeners as one: each hears everything, in order."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = listeners

    def working(self, label: str, done: int, total: int) -> None:
        for listener in self.listeners:
            listener.working(label, done, total)

    def planned(self, plan: Plan) -> None:
        for listener in self.listeners:
            listener.planned(plan)

    def priced(self, prospect: Prospect) -> None:
        for listener in self.listeners:
            listener.priced(prospect)

    def started(self, run: Run) -> None:
        for listener in self.listeners:
            listener.started(run)

    def round_started(self, round: int, clients: Sequence[str]) -> None:
        for listener in self.listeners:
            listener.round_started(round, clients)

    def client_done(self, verdict: Verdict) -> None:
        for listener in self.listeners:
            listener.client_done(verdict)

    def round_done(self, row: Row) -> None:
        for listener in self.listeners:
            listener.round_done(row)

    def finished(self, run: Run) -> None:
        for listener in self.listeners:
            listener.finished(run)

    def ended(self) -> None:
        for listener in self.listeners:
            listener.ended()


@contextmanager
def spectators(
    listener: Listener | None = None, *, track: str | Sequence[str] = (), quiet: bool
) -> Iterator[Listener]:
    """Joins all listeners, with a progress display unless it is to be quiet."""
    others = [*([] if listener is None else [listener]), *trackers(track)]
    spectator = None if quiet else Spectator()
    try:
        yield Listeners([*others, *([] if spectator is None else [spectator])])
    finally:
        if spectator is not None:
            spectator.stop()
