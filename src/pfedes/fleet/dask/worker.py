"""A worker of a cluster: what runs there to answer a driver's tasks.

It builds the same simulation as the driver and answers by the same host as every other fleet. It
never commits: a client's new state goes back with the answer, or beside its place in the run
directory, where only the driver can commit it.
"""

import tomllib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from pickle import PickleBuffer
from typing import Literal

from pfedes.config import validate
from pfedes.core.payload import decode, encode
from pfedes.core.protocol import Reply
from pfedes.errors import DamageError, DataError, DiskError
from pfedes.files import Buffer
from pfedes.fleet.client_host import ClientHost, host_of
from pfedes.fleet.dask.datasets import copy_here
from pfedes.fleet.messages import Answer, from_answer, to_task
from pfedes.fleet.process import keep_freed_memory
from pfedes.fleet.serial import with_threads
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore
from pfedes.store.log import Collected

MOST_KEPT = 256 * 2**20  # bytes of client states that a worker remembers


@dataclass(frozen=True)
class NodeRun:
    """The facts of a run that a worker needs to answer for its clients."""

    config: str
    data: str  # the digest of everybody's data


@dataclass(frozen=True)
class Order:
    """A task with all that goes with it, except the state it starts from, which is large."""

    run: NodeRun
    message: bytes
    versions: tuple[int, ...]  # that the client has, up to the task's base
    attempt: str  # names this order among all others, also those for the same task
    clients: str = ""  # the directory of client states, where the worker sees it
    kept: str = ""  # the attempt by which this worker itself made the state to start from


@dataclass(frozen=True)
class Done:
    """The result of an order: the answer, and the place of the new state, if any."""

    message: bytes = b""
    version: Buffer | None = None  # it travels along, and is not copied for that
    written: bool = False  # the new state waits in the directory of client states
    log: str = ""
    lacks: Literal["", "base"] = ""


class NodeSession:
    """Carries out the orders of one run. A process has one session at a time."""

    def __init__(self, run: NodeRun) -> None:
        self.run = run
        config = validate(tomllib.loads(run.config))
        self.threads = config.runtime.threads
        self.store = CarriedStore()
        dataset = None
        if not config.participants and (dataset := copy_here(config.data, run.data)) is None:
            raise LacksDataError(config.data.source)
        simulation = Simulation(config, data=dataset)
        if simulation.population.digest != run.data:
            raise DataError("the participants' data is not what the driver has")
        self.host: ClientHost = host_of(simulation, self.store)


class LacksDataError(DataError):
    """The data set is not here, but could be sent."""


class CarriedStore(ClientStore):
    """The versions of the one client that is at work, as far as its order says."""

    def __init__(self) -> None:
        super().__init__(Path())
        self._versions: tuple[int, ...] = ()
        self._base: bytes | None = None
        self.new: bytes | None = None

    def take(self, versions: tuple[int, ...], base: bytes | None) -> None:
        self._versions, self._base, self.new = versions, base, None

    def versions(self, run: str, client: str) -> list[int]:
        return list(self._versions)

    def contents(self, run: str, client: str, version: int) -> bytes:
        if self._base is None:
            raise DamageError(f"version {version} was not sent")
        return self._base

    def put(self, run: str, client: str, version: int, data: Buffer) -> None:
        self.new = bytes(data)

    def discard(self, run: str, client: str, versions: object) -> None:
        """The driver makes way when it commits."""


_desk: NodeSession | None = None
_logged = Collected()
_kept: OrderedDict[str, bytes] = OrderedDict()  # new states by attempt, the latest last


def prepare(run: NodeRun) -> str:
    """Makes ready for a run's orders: 'ready', 'data' if that must be sent, or what is wrong."""
    try:
        _desk_for(run)
    except LacksDataError:
        return "data"
    except Exception as error:  # a participant's own code may raise anything
        return str(error) or type(error).__name__
    return "ready"


def work(order: Order) -> Done:
    """Carries out an order, unless the state to start from would have to be sent."""
    return _work(order, None)


def work_from(state: bytes, order: Order) -> Done:
    """Carries out an order that starts from the state that was sent with it."""
    return _work(order, state)


def _work(order: Order, base: bytes | None) -> Done:
    desk = _desk_for(order.run)
    kind, task = to_task(decode(order.message))
    if base is None and task.base in order.versions:
        base = _kept.get(order.kept)
        if base is None and order.clients:
            base = _shared(order.clients, task.run, task.client, task.base)
        if base is None:
            return Done(lacks="base")
    desk.store.take(order.versions, base)
    with with_threads(desk.threads):
        answer: Answer = desk.host.answer(task) if kind == "answer" else desk.host.score(task)
    new, log = desk.store.new, _logged.take()
    message = encode(from_answer(answer, ""))
    if not isinstance(answer, Reply) or new is None:
        return Done(message, log=log)
    _keep(order.attempt, new)
    if order.clients:
        try:
            there = ClientStore(Path(order.clients))
            there.put_attempt(task.run, task.client, task.round, order.attempt, new)
            return Done(message, written=True, log=log)
        except DiskError:
            pass  # seen, but not for this worker to write: the state travels
    return Done(message, version=PickleBuffer(new), log=log)


def _desk_for(run: NodeRun) -> NodeSession:
    global _desk  # noqa: PLW0603 (a process is one worker with one thread)
    if _desk is None:
        keep_freed_memory()
        _logged.begin()
    if _desk is None or _desk.run != run:
        _desk = NodeSession(run)
        _logged.take()  # the driver has said the same
    return _desk


def _shared(clients: str, run: str, client: str, version: int) -> bytes | None:
    try:
        return ClientStore(Path(clients)).contents(run, client, version)
    except (DamageError, DiskError):
        return None  # not seen yet, or not for this worker to read: the state travels


def _keep(attempt: str, data: bytes) -> None:
    """Remembers the latest states, so that they need not be sent here again."""
    _kept[attempt] = data
    while sum(map(len, _kept.values())) > MOST_KEPT:
        _kept.popitem(last=False)
