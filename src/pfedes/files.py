"""Files that are either there, whole and on the disk, or not there at all."""

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import PickleBuffer
from typing import Any

from pfedes.errors import DamageError, DiskError

Buffer = bytes | memoryview | PickleBuffer
"""What can be written as it is, wherever in memory it came to lie."""


BLOCK = 2**16  # bytes that are looked through at a time


def write_atomically(path: Path, data: Buffer, *, mode: int = 0o600) -> None:
    """Writes beside the place, flushes to the disk, then renames. Others cannot read it."""
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        work = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        try:
            handle = os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(work, path)
        except BaseException:
            work.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def publish(path: Path, data: Buffer) -> None:
    """The same, for whoever may read other files of this user: what people show each other."""
    write_atomically(path, data, mode=0o666)  # less the umask


@contextmanager
def beside(directory: Path) -> Iterator[Path]:
    """An empty directory next to where another will be; what is left of it is removed."""
    with writing(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        work.chmod(0o755)  # mkdtemp made it for the owner alone
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


def append(path: Path, data: bytes, at: int) -> None:
    """Writes from position `at`, dropping whatever stood there.

    What an interrupted writer left behind the last committed length thus disappears.
    """
    new = not path.exists()
    with writing(path), path.open("w+b" if new else "r+b") as file:
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
    """Adds a line; an unfinished one that an interrupted writer left behind is cut off."""
    with writing(path):
        end = _end_of_lines(path) if path.exists() else 0
    append(path, line + b"\n", end)


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
    """The contents of a file that must be there."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise DamageError(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:  # no permission, too many open files: the file may be well
        raise DiskError(f"cannot read {path}: {error.strerror}") from None


def parse_json(path: Path, data: bytes) -> Any:
    """What a file's bytes say, or the line that names the file."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamageError(f"{path} is damaged: {error}") from None


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
