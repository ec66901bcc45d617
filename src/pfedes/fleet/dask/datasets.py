"""The data set on a worker's machine: its own copy if that is the same, else one that is sent."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pfedes.data import sources
from pfedes.data.dataset import Dataset, cache_root
from pfedes.data.received import FILES, Label, keep, received
from pfedes.data.sources import DataConfig
from pfedes.errors import DataError
from pfedes.fleet.dask.connection import Connection
from pfedes.fleet.dask.roster import Node
from pfedes.fleet.dask.transfer import drop, new_place, ship, unheard


def own_copy(config: DataConfig, digest: str) -> Dataset | None:
    """The data set as this machine has it, if it holds the same."""
    try:
        found = sources.load(config)
    except DataError:
        return None
    return found if found.digest == digest else None


def copy_here(config: DataConfig, digest: str) -> Dataset | None:
    """The data set as this machine has it, or as it was sent here."""
    return own_copy(config, digest) or received(digest)


def lacks(config: DataConfig, digest: str) -> bool:
    """Whether the data set must be sent to the worker that is asked."""
    return copy_here(config, digest) is None


class Shipping:
    """Sends data sets, each once to every machine, however many workers it has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._at_work: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by machine

    async def provide(
        self,
        node: Node,
        config: DataConfig,
        dataset: Dataset,
        moved: Callable[[], None] = unheard,
    ) -> bool:
        """Sees to it that a worker has a data set; whether it had to be sent for that."""
        async with self._at_work[node.host]:
            # Another worker of that machine may have received it meanwhile.
            if not await self._call(node, lacks, config, dataset.digest):
                return False
            home: Any = dataset.images  # a memory map, which knows its file
            place = await self._call(node, _new_place_in_cache)
            try:
                source = Path(home.filename).parent
                await ship(self._connection, node.address, source, place, FILES, moved)
                await self._call(node, keep, Path(place), Label.of(dataset))
            finally:
                await self._call(node, drop, place)
        return True

    async def _call(self, node: Node, function: Any, *arguments: Any) -> Any:
        return await self._connection.call(node.address, function, *arguments)


def _new_place_in_cache() -> str:
    return new_place(str(cache_root()))
