"""The progress display of a sweep: a line for each run at work."""

from collections.abc import Callable, Mapping, Sequence

from pfedes.api.spectator import Spectator
from pfedes.formatting import percent
from pfedes.results.classwise import warning_of
from pfedes.sweep.cells import Cell, Outcome


class Overview:
    """One bar over the rounds of all cells, and a line per finished cell."""

    def __init__(
        self, cells: Sequence[Cell], weight: Callable[[Cell], float] = lambda cell: 1.0
    ) -> None:
        self.cells = cells
        self.weights = {cell.name: weight(cell) for cell in cells}  # of a round
        self.spectator = Spectator()
        self._told: set[str] = set()

    def __call__(self, working: Mapping[str, int], outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.cell.name not in self._told:
                self._told.add(outcome.cell.name)
                self._tell(outcome)
        ended = {outcome.cell.name for outcome in outcomes}
        done = sum(self.weights[c.name] * c.rounds for c in self.cells if c.name in ended)
        done += sum(self.weights[name] * rounds for name, rounds in working.items())
        total = sum(self.weights[cell.name] * cell.rounds for cell in self.cells)
        names = ", ".join(working)
        runs = f"{len(ended)} of {len(self.cells)} runs"
        self.spectator.bar("all rounds", done, total, names, runs)

    def stop(self) -> None:
        self.spectator.stop()

    def _tell(self, outcome: Outcome) -> None:
        if outcome.run is None:
            text = outcome.reason
        elif not outcome.run.trained:
            text = "no round succeeded"
        else:
            summary = outcome.run.summary
            text = f"{percent(summary['mean_accuracy'])} in {summary['seconds']:.0f} s"
            if warning := warning_of(outcome.run):
                text += f"; {warning}"
        self.spectator.bars.say(f"{outcome.cell.name}: {text}")
