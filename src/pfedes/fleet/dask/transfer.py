"""Directories that travel between driver and worker, in pieces that fit into memory.

The functions without a connection run on the worker.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from distributed import get_worker

from pfedes.errors import WireError
from pfedes.fleet.dask.connection import Connection

PIECE = 32 * 2**20  # bytes


def unheard() -> None:
    """Said of every piece, where nobody listens."""


async def ship(
    connection: Connection,
    worker: str,
    source: Path,
    place: str,
    only: tuple[str, ...] = (),
    moved: Callable[[], None] = unheard,
) -> None:
    """Copies the files of a directory of ours, or some, into a place on a worker's machine."""
    for name, size in listing(str(source)):
        if only and name not in only:
            continue
        await connection.call(worker, begin, place, name)
        with (source / name).open("rb") as file:
            for offset in range(0, size, PIECE):
                await connection.call_with(worker, add, file.read(PIECE), place, name, offset)
                moved()


async def fetch(
    connection: Connection,
    worker: str,
    place: str,
    target: Path,
    moved: Callable[[], None] = unheard,
) -> None:
    """Copies the files of a place on a worker's machine into a directory of ours."""
    for name, size in await connection.call(worker, listing, place):
        if (path := PurePosixPath(name)).is_absolute() or ".." in path.parts:
            raise WireError(f"a worker sends a file named {name!r:.120}")
        begin(str(target), name)
        for offset in range(0, size, PIECE):
            add(await connection.call(worker, read, place, name, offset), str(target), name, offset)
            moved()


def new_place(parent: str = "") -> str:
    """An empty directory on this machine; without a parent, one that goes when the worker does."""
    home = Path(parent or get_worker().local_directory)
    home.mkdir(parents=True, exist_ok=True)
    return tempfile.mkdtemp(prefix=".pfedes-", dir=home)


def listing(place: str) -> list[tuple[str, int]]:
    """All files of a directory and their sizes."""
    home = Path(place)
    return [
        (path.relative_to(home).as_posix(), path.stat().st_size)
        for path in sorted(home.rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]


def begin(place: str, name: str) -> None:
    path = Path(place, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def add(piece: bytes, place: str, name: str, offset: int) -> None:
    with Path(place, name).open("r+b") as file:
        file.seek(offset)
        file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def read(place: str, name: str, offset: int) -> bytes:
    with Path(place, name).open("rb") as file:
        file.seek(offset)
        return file.read(PIECE)


def drop(place: str) -> None:
    """Removes a directory with everything in it; does nothing if it is missing."""
    shutil.rmtree(place, ignore_errors=True)
