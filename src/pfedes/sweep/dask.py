"""The runs of a sweep, spread over a cluster.

A cell is a serial run in a child process of a worker, in a directory of that machine. When
it is finished, the driver fetches it and renames it into place. The child ends with its worker, or
when its result is no longer needed.
"""

import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from distributed import get_worker

from pfedes.config import configure
from pfedes.config.runtime import RuntimeConfig
from pfedes.data import sources
from pfedes.files import beside, sync_directory, writing
from pfedes.fleet.dask.connection import Connection
from pfedes.fleet.dask.datasets import Shipping, own_copy
from pfedes.fleet.dask.dispatch import Assignment, Dispatch, Work
from pfedes.fleet.dask.roster import Node, Roster
from pfedes.fleet.dask.transfer import drop, fetch, new_place, ship
from pfedes.sweep.cells import Cell, Outcome, outcome_of
from pfedes.sweep.child import CellResult
from pfedes.sweep.local import ChildProcess

POLL = 0.1  # seconds
RUN = "run"  # the directory of the run in its place
BETWEEN_SIGNS = 1.0  # seconds between a worker's signs of life
LONGEST_IDLE = 5.0  # seconds for which a child process waits for the next cell
LONGEST_SILENCE = 60.0  # seconds after which it must be taken for frozen


@dataclass(frozen=True)
class Job:
    """A cell as a worker sees it."""

    name: str
    config: str
    place: str  # on the worker's machine; the run is, or will be, in it
    data: str  # the digest of the data set, '' if participants bring their own
    topic: str  # where to give signs of life
    attempt: str


def carry_out(job: Job) -> CellResult:
    """Runs a cell to its end in a child process."""
    worker: Any = get_worker()
    key = worker.get_current_task()
    config_file = Path(job.place, "config.toml")
    config_file.write_text(job.config)
    cell = Cell(job.name, configure(config_file), Path(job.place, RUN))
    with _child.for_data(_where_data_is(job, cell)) as child:
        child.begin(cell)
        next_sign = 0.0
        while (outcome := child.poll()) is None:
            task = worker.state.tasks.get(key)
            if task is None or task.state != "executing":  # cancelled, or its driver is gone
                child.close()
                shutil.rmtree(job.place, ignore_errors=True)
                return CellResult("its result is no longer needed")
            if time.monotonic() >= next_sign:
                worker.log_event(job.topic, {"attempt": job.attempt, "rounds": cell.rounds_done()})
                next_sign = time.monotonic() + BETWEEN_SIGNS
            time.sleep(0.05)
    return CellResult(outcome.reason, outcome.failed)


def _where_data_is(job: Job, cell: Cell) -> str:
    """The digest of the copy that was sent; '' if this machine has its own."""
    own = not job.data or own_copy(cell.config.data, job.data) is not None
    return "" if own else job.data


class Child:
    """A worker's child process, which serves one cell after another, and is let go when idle."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        self._data = ""
        self._lock = threading.RLock()
        self._idle: threading.Timer | None = None

    @contextmanager
    def for_data(self, digest: str) -> Iterator[ChildProcess]:
        """The process that looks for its data there, or a new one."""
        with self._lock:
            if self._idle is not None:
                self._idle.cancel()
            if self._process is None or self._process.closed or self._data != digest:
                self.let_go()
                self._process, self._data = ChildProcess(PFEDES_RECEIVED=digest), digest
            yield self._process
            self._idle = threading.Timer(LONGEST_IDLE, self.let_go)
            self._idle.daemon = True
            self._idle.start()

    def let_go(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.close()
            self._process = None


_child = Child()  # a process is one worker with one thread


class ClusterRunner(Work[Cell, Outcome]):
    """The workers of a cluster, each with one cell at a time."""

    def __init__(self, cells: Sequence[Cell], jobs: int, runtime: RuntimeConfig) -> None:
        self._runtime = runtime
        ours = {cell.config.data for cell in cells if not cell.config.participants}
        self._datasets = {data: sources.load(data) for data in ours}
        self._heard: dict[str, float] = {}  # when a cell last gave a sign of life, by name
        self._rounds: dict[str, int] = {}  # that it had done by then
        self._attempts: dict[str, str] = {}  # whose an attempt is; the latest of each cell alone
        self._connection = Connection(runtime)
        self._shipping = Shipping(self._connection)
        self._topic = f"pfedes-{secrets.token_hex(8)}"
        try:
            self._connection.listen(self._topic, self._hear)
            precisions = sorted({kind for cell in cells for kind in cell.config.precisions})
            roster = Roster(self._connection, runtime, None, _admit, precisions)
            roster.gather()
        except BaseException:
            self.close()
            raise
        self._dispatch = Dispatch(roster, self, cells, most=jobs)

    @property
    def open(self) -> bool:
        return self._dispatch.open

    def step(self) -> list[Outcome]:
        return self._dispatch.step(POLL)

    def working(self) -> dict[str, int]:
        return {cell.name: self._rounds.get(cell.name, 0) for cell in self._dispatch.flying}

    def close(self) -> None:
        self._connection.close()

    def name(self, item: Cell) -> str:
        return item.name

    def choose(self, waiting: list[Assignment[Cell]], node: Node) -> int:
        return 0

    async def carry(self, item: Cell, node: Node, claim: Callable[[], bool]) -> Outcome | None:
        cell, attempt = item, secrets.token_hex(8)
        self._attempts = {a: name for a, name in self._attempts.items() if name != cell.name}
        self._attempts[attempt] = cell.name
        moved = partial(self._hear, {"attempt": attempt, "rounds": cell.rounds_done()})
        moved()
        connection, address = self._connection, node.address
        place = await connection.call(address, new_place)
        if (cell.directory / "state").is_dir():  # begun somewhere else: it continues from there
            await ship(connection, address, cell.directory, f"{place}/{RUN}", moved=moved)
        digest = ""
        if (dataset := self._datasets.get(cell.config.data)) is not None:
            digest = dataset.digest
            await self._shipping.provide(node, cell.config.data, dataset, moved)
        job = Job(cell.name, cell.config.to_toml(), place, digest, self._topic, attempt)
        result = await connection.call(address, carry_out, job)
        if result.reason:
            await connection.call(address, drop, place)
            return Outcome(cell, None, result.reason, result.failed) if claim() else None
        with beside(cell.directory) as work:
            await fetch(connection, address, f"{place}/{RUN}", work, moved)
            await connection.call(address, drop, place)
            if not claim():
                return None
            _replace(cell.directory, work)
        return outcome_of(cell)

    def is_overdue(self, item: Cell, seconds: float) -> bool:
        chosen = self._runtime.deadline
        silence = time.monotonic() - self._heard.get(item.name, time.monotonic())
        return silence > (LONGEST_SILENCE if chosen == "auto" else chosen)

    def give_up(self, item: Cell, reason: str) -> Outcome:
        return Outcome(item, None, reason, failed=True)

    def _hear(self, sign: dict[str, Any]) -> None:
        if (name := self._attempts.get(sign["attempt"])) is not None:
            self._heard[name] = time.monotonic()
            self._rounds[name] = sign["rounds"]


async def _admit(node: Node) -> None:
    """Every cell brings along what it needs."""


def _replace(directory: Path, work: Path) -> None:
    """Puts a finished run in its place, where an unfinished part of it may be."""
    # Renamed, not removed: at any moment the place holds a whole run, or nothing.
    with beside(directory) as aside, writing(directory):
        if directory.exists():
            os.rename(directory, aside / RUN)
        os.rename(work, directory)
        sync_directory(directory.parent)
