"""Work for a cluster's nodes, against nodes that exist only here: deaths, silence, late answers."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip(
    "distributed", reason="needs the extra 'cluster': pip install 'pfedes[cluster]'"
)

from pfedes.errors import DiskError
from pfedes.fleet.dask.dispatch import Assignment, Attempt, Dispatch, Work
from pfedes.fleet.dask.roster import Node


class FakeRoster:
    """Nodes that are there, and an event loop in the place of a connection."""

    def __init__(self, *names: str) -> None:
        self.nodes = {name: Node(name, name, "here", sees=False) for name in names}
        self.there = set(names)
        self.dead: set[str] = set()  # that is noticed at the next look
        self.suspended: list[str] = []
        self.connection = self
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def look(self) -> None:
        for name in list(self.dead):
            self.nodes.pop(name, None)
            self.there.discard(name)

    def check(self) -> None:
        pass

    def expect_somebody(self) -> None:
        assert self.nodes, "nobody is left"

    def suspend(self, node: Node) -> None:
        self.suspended.append(node.name)
        self.nodes.pop(node.address, None)

    def end(self) -> None:
        self.start(_cancel_everything()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_everything() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Errands(Work[str, str]):
    """What a node does is asked of the test, by assignment and node."""

    def __init__(self, does: Callable[[str, str], str | None]) -> None:
        self.does = does
        self.begun: list[tuple[str, str]] = []
        self.overdue: set[str] = set()
        self.late = threading.Event()

    def name(self, item: str) -> str:
        return item

    def choose(self, waiting: list[Assignment[str]], node: Node) -> int:
        return 0

    async def carry(self, item: str, node: Node, claim: Callable[[], bool]) -> str | None:
        self.begun.append((item, node.name))
        result = self.does(item, node.name)
        while result is None and not self.late.is_set():  # it freezes, or dies, until it thaws
            await asyncio.sleep(0.001)
        return f"{item} by {node.name}" if claim() else None

    def is_overdue(self, item: str, seconds: float) -> bool:
        return item in self.overdue and len(self.begun) == 1

    def give_up(self, item: str, reason: str) -> str:
        return f"{item}: {reason}"


@pytest.fixture
def roster() -> Iterator[FakeRoster]:
    roster = FakeRoster("a", "b", "c", "d")
    yield roster
    roster.end()


def dispatch(roster: FakeRoster, work: Errands, *items: str, most: int = 0) -> Dispatch[str, str]:
    return Dispatch(roster, work, items, most=most)  # type: ignore[arg-type]  # a fake roster


def done(assignments: Dispatch[str, str]) -> list[str]:
    results = []
    while assignments.open:
        results += assignments.step(0.01)
    return results


def test_three_deaths_are_one_errands_failure(
    roster: FakeRoster, caplog: pytest.LogCaptureFixture
) -> None:
    def does(item: str, node: str) -> str | None:
        if item == "deadly":
            roster.dead.add(node)
            return None
        return "done"

    work = Errands(does)
    found = done(dispatch(roster, work, "deadly", "other"))
    assert [text for text in found if text.startswith("other by")]
    assert "deadly: its worker died, 3 times" in found
    assert len({node for item, node in work.begun if item == "deadly"}) == 3
    assert caplog.text.count("deadly on ") == 3


def test_a_silent_node_is_left_behind_and_its_late_answer_does_not_count(
    roster: FakeRoster, caplog: pytest.LogCaptureFixture
) -> None:
    work = Errands(lambda item, node: None if len(work.begun) == 1 else "done")
    work.overdue.add("slow")
    assignments = dispatch(roster, work, "slow")
    found = done(assignments)
    (first, second) = [node for _, node in work.begun]
    assert found == [f"slow by {second}"]
    assert roster.suspended == [first]
    assert "no answer within 0 s (attempt 1 of 3)" in caplog.text
    work.late.set()
    assert assignments.step(0.05) == []


def test_what_a_worker_raises_is_tried_elsewhere(roster: FakeRoster) -> None:
    def does(item: str, node: str) -> str:
        if len(work.begun) < 3:
            raise OSError("the line is cut")
        return "done"

    work = Errands(does)
    assert done(dispatch(roster, work, "x")) == [f"x by {work.begun[-1][1]}"]
    assert len(work.begun) == 3
    broken = Errands(lambda item, node: str(1 // 0))
    (found,) = done(dispatch(roster, broken, "y"))
    assert found.startswith("y: ZeroDivisionError ")
    assert found.endswith(", 3 times")


def test_trouble_of_the_drivers_own_is_not_repeated(roster: FakeRoster) -> None:
    def does(item: str, node: str) -> str:
        raise DiskError("no space left")

    work = Errands(does)
    with pytest.raises(DiskError, match="no space left"):
        done(dispatch(roster, work, "x"))
    assert len(work.begun) == 1


def test_each_attempt_has_twice_the_time_of_the_one_before(
    roster: FakeRoster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Errands):
        def is_overdue(self, item: str, seconds: float) -> bool:
            counted.append(seconds)
            return False

    counted: list[float] = []
    monkeypatch.setattr(Attempt, "seconds", 100.0)
    work = Counting(lambda item, node: None)
    assignments = dispatch(roster, work, "x")
    assignment = assignments.waiting[0]
    for attempts in (0, 1, 2, 3):
        assignment.attempts = attempts
        assignments.step(0.01)
    assert counted == [50.0, 25.0, 12.5]  # nobody was at it before the first step
    work.late.set()
    assert done(assignments) == [f"x by {work.begun[0][1]}"]


def test_at_most_so_many_at_a_time(roster: FakeRoster) -> None:
    work = Errands(lambda item, node: None)
    assignments = dispatch(roster, work, *"xyz", most=2)
    for _ in range(5):
        assignments.step(0.01)
    assert sorted(assignments.flying) == ["x", "y"]
    work.late.set()
    assert sorted(text[0] for text in done(assignments)) == ["x", "y", "z"]


def test_what_is_abandoned_counts_for_nothing(roster: FakeRoster) -> None:
    work = Errands(lambda item, node: None)
    assignments = dispatch(roster, work, "x", "y")
    assignments.step(0.01)
    assignments.abandon()
    assert not assignments.open
    work.late.set()
    assert assignments.step(0.05) == []
