"""Assignments for the workers of a cluster, one at a time each, until all are done.

If a worker dies or falls silent, another one gets its assignment. An assignment may thus be under
way twice: the worker that finishes first counts, and the other one's result is dropped.
"""

import logging
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from pfedes.errors import ClusterError, DiskError
from pfedes.fleet.dask.roster import Node, Roster

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 3


class Assignment(Generic[T]):
    """Something to be done on some worker."""

    def __init__(self, item: T, name: str) -> None:
        self.item = item
        self.name = name
        self.attempts = 0
        self.closed = False  # it is done, or given up


class Attempt(Generic[T]):
    """An assignment on its way on one worker."""

    def __init__(self, assignment: Assignment[T], node: Node, claimed: Callable[[], None]) -> None:
        self.assignment = assignment
        self.node = node
        self._tell_claimed = claimed
        self.began = time.monotonic()
        self.late = False
        self.claimed = False
        self.handle: Future[None] | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def claim(self) -> bool:
        """True for the first flight that has its assignment's result in hand, and for no other."""
        if self.assignment.closed:
            return False
        self.assignment.closed = self.claimed = True
        self._tell_claimed()
        return True

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()


class Work(ABC, Generic[T, R]):
    """The kind of assignments."""

    @abstractmethod
    def name(self, item: T) -> str:
        """Its name in messages."""

    @abstractmethod
    def choose(self, waiting: list[Assignment[T]], node: Node) -> int:
        """The place of the assignment that a free worker had best be given."""

    @abstractmethod
    async def carry(self, item: T, node: Node, claim: Callable[[], bool]) -> R | None:
        """Has it done by a worker. The result counts if `claim` says so; else return None."""

    @abstractmethod
    def is_overdue(self, item: T, seconds: float) -> bool:
        """Whether a worker that has been at it for so long must be taken for frozen."""

    @abstractmethod
    def give_up(self, item: T, reason: str) -> R:
        """The result of what several workers could not do."""


class Dispatch(Generic[T, R]):
    """Errands of one kind, on their way to being done."""

    def __init__(
        self, roster: Roster, work: Work[T, R], items: Iterable[T], *, most: int = 0
    ) -> None:
        """At `most` so many at a time; 0 stands for as many as there are workers."""
        self.roster = roster
        self._most = most or sys.maxsize
        self.work = work
        self.waiting = [Assignment(item, work.name(item)) for item in items]
        self._flights: set[Attempt[T]] = set()
        # None says that a worker has become free: what it did is not yet put where it belongs.
        self._landed: SimpleQueue[tuple[Attempt[T], R | None, BaseException | None] | None]
        self._landed = SimpleQueue()

    @property
    def open(self) -> bool:
        return bool(self.waiting) or bool(self._flights)

    @property
    def flying(self) -> list[T]:
        """The assignments that occupy workers; a result that is being stored occupies none."""
        flights = (flight for flight in self._flights if not flight.claimed)
        return list({id(f.assignment): f.assignment.item for f in flights}.values())

    def step(self, seconds: float) -> list[R]:
        """Moves everything on, waiting so long for something to happen; what is done now."""
        self.roster.look()
        results = self._leave_behind()
        self._launch()
        if self.waiting and not any(not flight.late for flight in self._flights):
            self.roster.expect_somebody()
        try:
            landed = [self._landed.get(timeout=seconds)]
        except Empty:
            return results
        while not self._landed.empty():
            landed.append(self._landed.get())
        for flight, result, error in filter(None, landed):
            if flight in self._flights:
                results += self._land(flight, result, error)
        return results

    def abandon(self) -> None:
        """Lets everything go that is still under way."""
        self.waiting.clear()
        for flight in self._flights:
            flight.assignment.closed = True
            flight.cancel()
        self._flights.clear()

    def _launch(self) -> None:
        busy = {flight.node.address for flight in self._flights if not flight.claimed}
        for address, node in self.roster.nodes.items():
            if not self.waiting or len(busy) >= self._most:
                return
            if address not in busy:
                busy.add(address)
                assignment = self.waiting.pop(self.work.choose(self.waiting, node))
                flight = Attempt(assignment, node, lambda: self._landed.put(None))
                self._flights.add(flight)
                flight.handle = self.roster.connection.start(self._fly(flight))

    async def _fly(self, flight: Attempt[T]) -> None:
        try:
            result = await self.work.carry(flight.assignment.item, flight.node, flight.claim)
        except BaseException as error:
            self._landed.put((flight, None, error))
            raise
        self._landed.put((flight, result, None))

    def _land(self, flight: Attempt[T], result: R | None, error: BaseException | None) -> list[R]:
        self._flights.discard(flight)
        if error is None:
            self._close(flight.assignment)
            return [] if result is None else [result]
        if isinstance(error, DiskError | ClusterError):
            raise error  # the driver's own trouble: no other worker would fare better
        self.roster.connection.check()  # it may have failed because all of them do
        return self._repeat(flight, " ".join(f"{type(error).__name__} {error}".split()))

    def _leave_behind(self) -> list[R]:
        """Stops waiting for workers that have gone, and for those that are silent for too long."""
        results: list[R] = []
        for flight in list(self._flights):
            if flight.claimed:
                continue  # the result is here
            if flight.node.address not in self.roster.there:
                self._flights.discard(flight)
                flight.cancel()
                if not flight.late:
                    results += self._repeat(flight, "its worker died")
            elif not flight.late and self._is_overdue(flight):
                flight.late = True
                self.roster.suspend(flight.node)
                results += self._repeat(flight, f"no answer within {flight.seconds:.0f} s")
        return results

    def _is_overdue(self, flight: Attempt[T]) -> bool:
        # Each attempt has twice the time of the one before: a slow worker is not a frozen one.
        patience = 2**flight.assignment.attempts
        return self.work.is_overdue(flight.assignment.item, flight.seconds / patience)

    def _repeat(self, flight: Attempt[T], reason: str) -> list[R]:
        assignment = flight.assignment
        if assignment.closed and not flight.claimed:
            return []
        assignment.attempts += 1
        log.warning(
            "%s on %s: %s (attempt %d of %d)",
            *(assignment.name, flight.node.name, reason, assignment.attempts, ATTEMPTS),
        )
        if assignment.attempts < ATTEMPTS:
            assignment.closed = False
            self.waiting.insert(0, assignment)
            return []
        self._close(assignment)
        return [self.work.give_up(assignment.item, f"{reason}, {ATTEMPTS} times")]

    def _close(self, assignment: Assignment[T]) -> None:
        """An assignment needs doing but once."""
        assignment.closed = True
        if not assignment.attempts:
            return  # no other worker has it, and it waits for none
        self.waiting = [other for other in self.waiting if other is not assignment]
        for flight in [flight for flight in self._flights if flight.assignment is assignment]:
            self._flights.discard(flight)
            flight.cancel()
            if not flight.late:
                self.roster.suspend(flight.node)  # it cannot be stopped, only waited for
