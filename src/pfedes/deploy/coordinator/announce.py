"""The lines of `pfedes serve` about rounds, which run in another process."""

import time
from collections.abc import Callable

from pfedes.deploy.coordinator.fleet import begun
from pfedes.deploy.coordinator.layout import Layout
from pfedes.formatting import percent
from pfedes.results.summary import Row

FIRST = 30.0  # seconds of silence after which it names those it waits for; then twice as long, ...


class Announcer:
    """Prints a line for each committed round, and the participants that a round waits for."""

    def __init__(self, layout: Layout, say: Callable[[str], None]) -> None:
        self.layout = layout
        self.say = say
        self._told: int | None = None  # the last round that was said
        self._awaited: tuple[int, list[str]] = (0, [])
        self._since = 0.0
        self._pause = FIRST

    def look(self) -> None:
        """Says what is new since the last look."""
        self._tell_rounds()
        self._tell_awaited(time.monotonic())

    def _tell_rounds(self) -> None:
        run = begun(self.layout)
        if run is None:
            self._told = 0
            return
        if self._told is None or run.manifest.round < self._told:
            self._told = run.manifest.round  # done before this command began
        for row in run.rounds[self._told :]:
            self.say(line_of(row, run.config.train.rounds))
        self._told = run.manifest.round

    def _tell_awaited(self, now: float) -> None:
        awaited = self.layout.awaited()
        if awaited != self._awaited:
            self._awaited, self._since, self._pause = awaited, now, FIRST
        round, sites = awaited
        if sites and now >= self._since + self._pause:
            self.say(f"round {round}: waiting for {', '.join(sites)}, {now - self._since:.0f} s")
            self._pause *= 2


def line_of(row: Row, rounds: int) -> str:
    """A round in one line."""
    line = f"round {row['round']}/{rounds}  accuracy {percent(row['accuracy'])}"
    line += f"  {row['answered']} of {row['selected']} answered  {row['seconds']:.1f} s"
    return line if row["status"] == "ok" else f"{line}  failed"
