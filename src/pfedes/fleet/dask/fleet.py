"""The fleet of a cluster's workers, on as many machines as it has.

The driver runs the rounds and alone commits. A client's state travels with its task and back; to a
worker that made the state itself it need not travel again, nor to one that sees the run directory.
A worker that dies or freezes has its task done by another: a client's round depends on nothing but
its task and its state, so the result is the same.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal, ParamSpec, TypeVar

from pfedes.config import Config
from pfedes.config.runtime import RuntimeConfig
from pfedes.core.client import Card
from pfedes.core.payload import decode, encode
from pfedes.core.protocol import Failure, Reply, Scored, Task
from pfedes.errors import DamageError, DiskError
from pfedes.fleet.client_host import ClientHost
from pfedes.fleet.dask.connection import Connection
from pfedes.fleet.dask.datasets import Shipping
from pfedes.fleet.dask.dispatch import Assignment, Dispatch, Work
from pfedes.fleet.dask.roster import Node, Refused, Roster
from pfedes.fleet.dask.worker import Done, NodeRun, Order, prepare, work, work_from
from pfedes.fleet.messages import from_task, to_answer
from pfedes.fleet.process import keep_freed_memory
from pfedes.fleet.scheduling import Pace
from pfedes.formatting import counted
from pfedes.population.partitioned import PartitionedPopulation

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

UNKNOWN_DEADLINE = 600.0  # seconds, until the duration of a task is known
LEAST_DEADLINE, TIMES_EXPECTED = 60.0, 10.0
LOOK_AHEAD = 256  # waiting tasks among which a warm one is looked for
WRITERS = 4  # threads that read and commit states

Kind = Literal["answer", "score"]
Returned = Reply | Failure | Scored


class ClusterFleet:
    """Spreads tasks over the workers of a cluster."""

    def __init__(self, host: ClientHost, config: Config) -> None:
        self.host = host
        self.runtime = config.runtime
        self.run = NodeRun(_for_workers(config).to_toml(), host.population.digest)
        self.warm: dict[str, StateOrigin] = {}  # by client
        self.paces: dict[Kind, Pace] = {
            "answer": Pace(host.population),
            "score": Pace(host.population),
        }
        self.data = config.data
        keep_freed_memory()  # for one state after the other
        self.threads = ThreadPoolExecutor(WRITERS)
        self.connection = Connection(config.runtime)
        self.shipping = Shipping(self.connection)
        directory = host.store.root if config.runtime.share_directory else None
        try:
            self.roster = Roster(
                self.connection, config.runtime, directory, self._admit, config.precisions
            )
            self.roster.gather()
        except BaseException:
            self.close()
            raise
        log.info("on a cluster: %s", self.manner)

    @property
    def places(self) -> int:
        return len(self.roster.nodes)

    @property
    def manner(self) -> str:
        nodes = self.roster.nodes.values()
        seeing = sum(node.sees for node in nodes)
        states = "in the run directory" if seeing == len(nodes) else "travelling"
        if 0 < seeing < len(nodes):
            states = f"in the run directory for {seeing}, else travelling"
        return f"{counted(self.places, 'node')} of {self.connection.address} (states {states})"

    def enroll(self) -> list[Card]:
        return self.host.cards()

    def round(self, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
        open_tasks = []
        for task in tasks:
            if (before := self.host.answered(task)) is not None:
                yield before
            else:
                open_tasks.append(task)
        for answer in self._spread("answer", open_tasks):
            assert not isinstance(answer, Scored)
            yield answer

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Scored | Failure]:
        for answer in self._spread("score", tasks):
            assert not isinstance(answer, Reply)
            yield answer

    def close(self) -> None:
        self.connection.close()
        self.threads.shutdown()

    def _spread(self, kind: Kind, tasks: Sequence[Task]) -> Iterator[Returned]:
        ordered = self.paces[kind].longest_first(tasks)
        dispatch = Dispatch(self.roster, Tasks(self, kind), ordered)
        try:
            while dispatch.open:
                yield from dispatch.step(0.2)
        finally:
            dispatch.abandon()

    async def _admit(self, node: Node) -> None:
        """Has a worker build the simulation, with the data that it may have to be sent for it."""
        found = await self.connection.call(node.address, prepare, self.run)
        if found == "data" and isinstance(self.host.population, PartitionedPopulation):
            if await self.shipping.provide(node, self.data, self.host.population.dataset):
                log.info("the data was sent to %s (%s)", node.name, node.host)
            found = await self.connection.call(node.address, prepare, self.run)
        if found != "ready":
            raise Refused(f"{node.name}: {found}")


@dataclass(frozen=True)
class StateOrigin:
    """The node that made a client's latest state, with the attempt and the round."""

    address: str
    attempt: str
    round: int


class Tasks(Work[Task, Returned]):
    """Tasks of one kind as assignments."""

    def __init__(self, fleet: "ClusterFleet", kind: Kind) -> None:
        self.fleet = fleet
        self.kind = kind

    def name(self, item: Task) -> str:
        return item.client

    def choose(self, waiting: list[Assignment[Task]], node: Node) -> int:
        """The longest task of those whose state is here, else of those whose state is nowhere."""
        warm = self.fleet.warm
        if not warm:
            return 0
        near = [assignment.item.client for assignment in waiting[:LOOK_AHEAD]]
        homes = [warm[client].address if client in warm else "" for client in near]
        if node.address in homes:
            return homes.index(node.address)
        there = self.fleet.roster.nodes
        return next((place for place, home in enumerate(homes) if home not in there), 0)

    async def carry(self, item: Task, node: Node, claim: Callable[[], bool]) -> Returned | None:
        fleet, task, began = self.fleet, item, time.monotonic()
        attempt = secrets.token_hex(8)
        order = Order(
            fleet.run,
            encode(from_task(self.kind, task)),
            await self._aside(self._versions, task),
            attempt,
            clients=str(fleet.host.store.root.absolute()) if node.sees else "",
            kept=self._kept_by(node, task),
        )
        done = Done(lacks="base")
        if order.kept or order.clients or task.base not in order.versions:
            done = await fleet.connection.call(node.address, work, order)
        if done.lacks:
            state = await self._aside(self._state, task)
            done = await fleet.connection.call_with(node.address, work_from, state, order)
        if not claim():
            return None
        answer = await self._aside(self._committed, task, done, attempt)
        fleet.paces[self.kind].learn(task, time.monotonic() - began)
        if isinstance(answer, Reply):
            fleet.warm[task.client] = StateOrigin(node.address, attempt, task.round)
        return answer

    def is_overdue(self, item: Task, seconds: float) -> bool:
        pace, chosen = self.fleet.paces[self.kind], self.fleet.runtime.deadline
        if chosen != "auto":
            return seconds > chosen
        if not pace.knows(item):
            return seconds > UNKNOWN_DEADLINE
        return seconds > max(LEAST_DEADLINE, TIMES_EXPECTED * pace.expected(item))

    def give_up(self, item: Task, reason: str) -> Failure:
        return Failure(item.client, reason)

    async def _aside(self, function: Callable[P, R], *arguments: P.args, **_: P.kwargs) -> R:
        """Files are read and written beside the connection, which must not wait for a disk."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.fleet.threads, partial(function, *arguments))

    def _versions(self, task: Task) -> tuple[int, ...]:
        """The client's versions, up to the one that the task starts from."""
        if task.base == 0:
            return ()
        versions = self.fleet.host.store.versions(task.run, task.client)
        return tuple(version for version in versions if version <= task.base)

    def _state(self, task: Task) -> bytes:
        try:
            return self.fleet.host.store.contents(task.run, task.client, task.base)
        except DamageError:
            return b""  # it was there a moment ago; the worker says what that means

    def _kept_by(self, node: Node, task: Task) -> str:
        warm = self.fleet.warm.get(task.client)
        made = warm is not None and (warm.address, warm.round) == (node.address, task.base)
        return warm.attempt if warm is not None and made else ""

    def _committed(self, task: Task, done: Done, attempt: str) -> Returned:
        """The answer, once the client's new state is where it belongs."""
        if done.log:
            log.info("%s: %s", task.client, done.log)
        answer, _ = to_answer(decode(done.message))
        assert not isinstance(answer, DiskError)
        # The worker that starts from it verifies its checksum.
        if done.version is not None:
            self.fleet.host.take_in(task, done.version)
        if done.written:
            self.fleet.host.adopt(task, attempt)
        return answer


def _for_workers(config: Config) -> Config:
    """The configuration for workers, without the paths of the driver's certificates."""
    runtime = RuntimeConfig(
        fleet="serial", device=config.runtime.device, threads=config.runtime.threads
    )
    return config.model_copy(update={"runtime": runtime})
