"""Runs of a sweep in this process, for methods that are defined only here."""

from collections.abc import Callable

from pfedes.federation.listener import Listener
from pfedes.federation.loop import Selector
from pfedes.results.summary import Row
from pfedes.sweep.carry_out import carry_out
from pfedes.sweep.cells import Cell, Outcome, outcome_of
from pfedes.sweep.child import request_of


class HereRunner:
    """One after another. `look` is called after every round, so that others move on meanwhile."""

    def __init__(self, cells: list[Cell], select: Selector, look: Callable[[], None]) -> None:
        self._waiting = cells
        self._select = select
        self._look = look
        self._cell: Cell | None = None

    @property
    def open(self) -> bool:
        return bool(self._waiting)

    def step(self) -> list[Outcome]:
        if not self._waiting:
            return []
        self._cell = cell = self._waiting.pop(0)
        try:
            result = carry_out(request_of(cell), select=self._select, listener=Looking(self._look))
        finally:
            self._cell = None
        if not result.reason:
            return [outcome_of(cell)]
        return [Outcome(cell, None, result.reason, result.failed)]

    def working(self) -> dict[str, int]:
        return {self._cell.name: self._cell.rounds_done()} if self._cell is not None else {}

    def close(self) -> None:
        """Nothing is under way between two steps."""


class Looking(Listener):
    """Has somebody look after every client and every round."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def round_done(self, row: Row) -> None:
        self._look()
