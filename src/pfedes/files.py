"""Files that are written whole or not at all, and the places that users name."""

import fcntl
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import PickleBuffer
from typing import IO, Any

from pfedes.errors import ConfigError, DamageError, DataError, DiskError, said

Buffer = bytes | memoryview | PickleBuffer
"""Data that can be written without a copy."""


BLOCK = 2**16  # bytes that are looked through at a time
MOST_DIGITS = 30  # of a whole number in JSON: none of ours has more, and a float holds it


def write_atomically(path: Path, data: Buffer, *, mode: int = 0o600) -> None:
    """Writes beside the place, flushes to the disk, then renames. Others cannot read it."""
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        work, handle = _create_beside(path, mode)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.replace(work, path)
        except BaseException:
            work.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def _create_beside(path: Path, mode: int) -> tuple[Path, int]:
    """A new temporary file, locked against `remove_abandoned` until it is closed."""
    while True:
        work = temporary(path)
        handle = os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        _lock(handle, wait=True)
        if os.fstat(handle).st_nlink:
            return work, handle
        os.close(handle)  # it was removed before it was locked: once more


def temporary(path: Path) -> Path:
    """A new name beside a path, for what will be renamed to it."""
    return path.with_name(f".{path.name}-{secrets.token_hex(8)}")


def is_temporary(path: Path) -> bool:
    """Whether a name has the form that `temporary` gives."""
    return re.fullmatch(r"\..+-[0-9a-f]{16}", path.name) is not None


def remove_abandoned(path: Path) -> None:
    """Removes a temporary file, unless the process that writes it is still alive."""
    with writing(path):
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return  # its writer has renamed it meanwhile
        try:
            if _lock(handle):
                path.unlink(missing_ok=True)
        finally:
            os.close(handle)


def _lock(handle: int, *, wait: bool = False) -> bool:
    """Locks a file that is being written; the lock ends with its process."""
    with suppress(OSError):  # held by another process, or a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return True
    return False


def publish(path: Path, data: Buffer) -> None:
    """Writes a file like `write_atomically`, with the user's default permissions."""
    write_atomically(path, data, mode=0o666)  # less the umask


PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
"""Modes of directories and files that only their owner may read."""


def make_private_directory(path: Path) -> None:
    """Makes a directory for its owner alone, with every level above it that is missing.

    One that is there already, and is this user's, is closed to others; those above it stay as they
    are. (`mkdir(mode=..., parents=True)` would give its mode to the last level only.)
    """
    with writing(path):
        for place in [level for level in (*reversed(path.parents), path) if not level.exists()]:
            place.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o077:
            path.chmod(PRIVATE_DIRECTORY)


def open_private(path: Path | str, mode: str, encoding: str | None = None) -> IO[Any]:
    """Opens a file that nobody but its owner may read; one that others could is closed to them."""
    # Path.open takes no opener.
    return open(path, mode, encoding=encoding, opener=private_handle)


def private_handle(path: Path | str, flags: int) -> int:
    """The same as a file descriptor."""
    handle = os.open(path, flags, PRIVATE_FILE)
    found = os.fstat(handle)
    if found.st_uid == os.geteuid() and found.st_mode & 0o077:
        os.fchmod(handle, PRIVATE_FILE)
    return handle


@contextmanager
def beside(directory: Path) -> Iterator[Path]:
    """An empty directory next to where another will be; what is left of it is removed."""
    work = temporary(directory)
    with writing(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def appearing(directory: Path) -> Iterator[Path]:
    """A directory to fill, which then appears by one rename: whole, or not at all."""
    with beside(directory) as work, writing(directory):
        yield work
        os.rename(work, directory)  # refuses a directory that is there and not empty
        sync_directory(directory.parent)


def append(path: Path, data: bytes, at: int, *, private: bool = False) -> None:
    """Writes from position `at`, dropping whatever stood there.

    What an interrupted writer left behind the last committed length thus disappears.
    """
    with writing(path):
        new = not path.exists()
        mode = "w+b" if new else "r+b"
        opened = open_private(path, mode) if private else path.open(mode)
    with writing(path), opened as file:
        if file.seek(0, os.SEEK_END) < at:
            raise DamageError(f"{path} is shorter than the {at} bytes that were committed")
        file.seek(at)
        file.truncate()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if new:
            sync_directory(path.parent)


def append_line(path: Path, line: bytes) -> None:
    """Adds a line; an unfinished one that an interrupted writer left behind is cut off.

    Nobody but its owner can read the file.
    """
    with writing(path):
        end = _end_of_lines(path) if path.exists() else 0
    append(path, line + b"\n", end, private=True)


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file, without an unfinished one at its end."""
    return read(path).split(b"\n")[:-1]


def _end_of_lines(path: Path) -> int:
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - BLOCK)
            file.seek(start)
            if (found := file.read(end - start).rfind(b"\n")) >= 0:
                return start + found + 1
            end = start
    return 0


def remove(path: Path) -> None:
    """Removes a file, if it is there."""
    with writing(path):
        path.unlink(missing_ok=True)


def read(path: Path) -> bytes:
    """The contents of a file that must be there.

    A directory from a stranger may have pipes and devices in it, which never end: they are refused.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise DamageError(f"{path} cannot be read: it is not a regular file")
            return file.read()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise DamageError(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:  # no permission, too many open files: the file may be well
        raise DiskError(f"cannot read {path}: {error.strerror}") from None


def parse_json(path: Path, data: bytes) -> Any:
    """Parses the bytes of a JSON file; a DamageError names the file."""
    try:
        return json.loads(data, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        raise DamageError(f"{path} is damaged: {error}") from None


def _whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)


def existing(path: Path) -> Path:
    """The path, or the nearest directory above it that is there."""
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def sync_directory(path: Path) -> None:
    """Makes renames in a directory survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Says which file could not be written, and why."""
    try:
        yield
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror}") from None


def at_home(path: Path | str) -> Path:
    """The path with `~` expanded; raises ConfigError if there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"cannot expand {str(path)!r}: no such user") from None


def directory(given: str, what: str) -> Path:
    """A directory that is there and can be read; or the line that says why not."""
    path = at_home(given)
    try:
        there = path.is_dir()
        if there:
            next(path.iterdir(), None)  # a search would skip a forbidden directory silently
    except OSError as error:
        raise DataError(f"{what} {given!r:.80}: {reason(error)}") from None
    if not there:
        raise DataError(f"{what} {given!r} does not exist")
    return path


def reason(error: Exception) -> str:
    """The text of an error of the system or a reader, without the file name."""
    return getattr(error, "strerror", None) or said(error)
