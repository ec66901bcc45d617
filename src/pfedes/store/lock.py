"""One process at a time on one directory. A crash does not leave a lock behind."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pfedes.errors import StoreError
from pfedes.files import make_private_directory, open_private, private_handle, writing

LOOKED_AT = 0.05  # seconds
PATIENCE = 10.0  # seconds; workers of a killed process end by themselves, a moment after it


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Keeps other processes off a run; waits for what is left of a killed one."""
    make_private_directory(state)  # an earlier version left it open to others
    with alone(state / "lock", f"another process is working on {state.parent}"):
        _wait_for_old_workers(state)
        yield


@contextmanager
def alone(lock: Path, otherwise: str) -> Iterator[int]:
    """Holds a lock file; while another process does, refuses with the line `otherwise`.

    Yields its descriptor: as long as that is open in any process, the lock is held.
    """
    with _open(lock) as file:
        if not _taken(file.fileno()):
            time.sleep(LOOKED_AT)  # another process may only have looked, by `is_held`
            if not _taken(file.fileno()):
                raise StoreError(otherwise)
        yield file.fileno()


def is_held(lock: Path) -> bool:
    """Whether a process of this machine holds a lock file; nothing is written, or made."""
    try:
        handle = os.open(lock, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


@contextmanager
def in_turn(lock: Path) -> Iterator[None]:
    """Holds a lock file for what takes a moment; waits while another process does."""
    with _open(lock) as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        yield


@contextmanager
def in_turn_at(directory: Path) -> Iterator[None]:
    """The same, with the directory itself as the lock: for one in which no file should appear."""
    with writing(directory):
        handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def hold_as_worker(state: Path) -> int:
    """A shared lock while this process lives, so that no other process resumes the run."""
    with writing(state / "workers"):
        handle = private_handle(state / "workers", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def _wait_for_old_workers(state: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    with _open(state / "workers") as file:
        while not _taken(file.fileno()):
            if time.monotonic() > deadline:
                raise StoreError(
                    f"workers of an earlier process are still at work on {state.parent}"
                )
            time.sleep(0.05)


def _open(path: Path) -> IO[str]:
    with writing(path):  # a process that cannot open the file cannot lock it either
        return open_private(path, "a")


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
