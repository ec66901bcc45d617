"""The workers of a cluster that can be used now. They come and go; every one is examined first."""

import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from pfedes.config.runtime import RuntimeConfig
from pfedes.core.precision import Precision
from pfedes.errors import ClusterError
from pfedes.fleet.dask.compatibility import (
    NodeFacts,
    differences,
    facts_of_process,
    facts_of_worker,
    probing,
)
from pfedes.fleet.dask.connection import Connection
from pfedes.formatting import listed

log = logging.getLogger(__name__)

BETWEEN_LOOKS = 0.5  # seconds
UNKNOWN_CALL = (TypeError, AttributeError, ImportError, UnpicklingError)
"""Errors of a worker with other code, at a call that this version has changed."""

LONGEST_EXAMINATION = 60.0  # seconds; after that nothing waits for a worker's first answer


@dataclass(frozen=True)
class Node:
    """A worker that passed every check."""

    address: str
    name: str
    host: str
    sees: bool  # the driver's directory


class Refused(Exception):  # noqa: N818 (a verdict, not an error)
    """Why a worker cannot be used."""


Admission = Callable[[Node], Coroutine[Any, Any, None]]
"""Makes a worker ready for this work; raises Refused if that is impossible."""


@dataclass(frozen=True)
class _Examination:
    result: "Future[Node]"
    began: float
    returning: bool  # it was in use before, and has fallen silent

    @property
    def promising(self) -> bool:
        return not self.returning and time.monotonic() < self.began + LONGEST_EXAMINATION


class Roster:
    """The nodes that can be given work. Call `look` often: it asks the scheduler only sometimes."""

    def __init__(
        self,
        connection: Connection,
        runtime: RuntimeConfig,
        directory: Path | None,
        admit: Admission,
        precisions: Sequence[Precision],
    ) -> None:
        """Workers are asked whether they see the directory, or where it is to be.

        In each of the precisions they must compute the same bits as this process.
        """
        self.connection = connection
        self.nodes: dict[str, Node] = {}  # that can be given work, by address
        self.there: set[str] = set()  # the addresses of all workers
        self._runtime = runtime
        self._directory = directory
        self._admit = admit
        self._precisions = precisions
        self._ours: NodeFacts = facts_of_process(runtime.device, runtime.threads, precisions)
        self._examined: dict[str, _Examination] = {}
        self._refused: dict[str, str] = {}
        self._next_look = 0.0
        self._asked: Future[dict[str, int]] | None = None  # the scheduler which workers there are
        self._has_looked = False
        self._nobody_since: float | None = None

    def gather(self) -> None:
        """Waits until all present workers have been examined."""
        while not self._has_looked or any(e.promising for e in self._examined.values()):
            self.look()
            time.sleep(0.02)
        if self._refused and not self.nodes:
            raise ClusterError(f"no worker of {self.connection.address} can be used: {self._why()}")
        while not self.nodes:
            self.expect_somebody()
            time.sleep(0.05)
            self.look()

    def look(self) -> None:
        """Updates which workers have joined, left, or passed the examination."""
        for address, examination in list(self._examined.items()):
            if examination.result.done():
                del self._examined[address]
                self._conclude(address, examination)
        if self.nodes:
            self._nobody_since = None
        self.connection.check()
        if self._asked is None:
            if time.monotonic() >= self._next_look:
                self._asked = self.connection.ask_for_workers()
        elif self._asked.done():
            there, self._asked = self._asked.result(), None
            self._next_look = time.monotonic() + BETWEEN_LOOKS
            self._has_looked = True
            self._compare(there)

    def _compare(self, there: dict[str, int]) -> None:
        self.there = set(there)
        for address in self.nodes.keys() - there.keys():
            log.warning("%s has left the cluster", self.nodes.pop(address).name)
        for address in self._examined.keys() - there.keys():
            self._examined.pop(address).result.cancel()
        for address in self._refused.keys() - there.keys():
            del self._refused[address]
        known = self.nodes.keys() | self._examined.keys() | self._refused.keys()
        for address in there.keys() - known:
            self._begin(address, there[address], returning=False)

    def suspend(self, node: Node) -> None:
        """Gives a silent worker no more work until it has answered again."""
        if self.nodes.pop(node.address, None) is not None:
            self._begin(node.address, 1, returning=True)

    def expect_somebody(self) -> None:
        """Warns once that no worker is left; raises a ClusterError if that lasts too long."""
        if self.nodes or any(examination.promising for examination in self._examined.values()):
            return
        limit = self._runtime.wait_for_nodes
        who = f"no worker of {self.connection.address} can be used"
        who = f"{who} ({self._why()})" if self._refused else who
        if self._nobody_since is None:
            self._nobody_since = time.monotonic()
            log.warning("%s: waiting up to %.0f s for one to join", who, limit)
        if time.monotonic() > self._nobody_since + limit:
            raise ClusterError(f"{who}, and none has joined within {limit:.0f} s")

    def _begin(self, address: str, threads: int, *, returning: bool) -> None:
        result = self.connection.start(self._examine(address, threads))
        self._examined[address] = _Examination(result, time.monotonic(), returning)

    async def _examine(self, address: str, threads: int) -> Node:
        runtime = self._runtime
        asked = (runtime.device, runtime.threads, self._precisions)
        with probing(self._directory) as probe:
            try:
                facts = await self.connection.call(address, facts_of_worker, *asked, probe)
            except UNKNOWN_CALL as error:
                raise Refused(
                    f"{address}: its pfedes is not the driver's, {self._ours.versions['pfedes']}: "
                    f"install that version there ({error})"
                ) from None
        node = Node(address, facts.name, facts.host, facts.sees)
        mixed = runtime.mixed_hardware
        if reasons := list(differences(self._ours, facts, threads, mixed=mixed)):
            raise Refused(f"{facts.name}: {'; '.join(reasons)}")
        if facts.canary != self._ours.canary:
            log.warning(
                "%s (%s) gives other bits; runtime.mixed_hardware lets it join",
                facts.name,
                facts.processor,
            )
        await self._admit(node)
        return node

    def _conclude(self, address: str, examination: _Examination) -> None:
        try:
            node = examination.result.result()
        except CancelledError:
            return  # it has gone meanwhile, or will be examined again
        except Exception as error:  # the worker's own Python may raise anything at our call
            text = str(error) or type(error).__name__
            reason = text if isinstance(error, Refused) else f"{address}: {text}"
            self._refused[address] = " ".join(reason.split())
            log.warning("left out: %s", self._refused[address])
            return
        verb = "is back" if examination.returning else "has joined"
        log.info("%s (%s on %s) %s", node.name, address, node.host, verb)
        self.nodes[address] = node

    def _why(self) -> str:
        return listed(sorted(self._refused.values()), 3)
