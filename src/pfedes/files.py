"""Files that are either there, whole and on the disk, or not there at all."""

import os
import tempfile
from pathlib import Path

from pfedes.errors import StoreError


def write_atomically(path: Path, data: bytes) -> None:
    """Writes beside the place, flushes to the disk, then renames."""
    if path.is_dir():
        raise StoreError(f"cannot write {path}: it is a directory")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes renames in a directory survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append(path: Path, data: bytes, at: int) -> int:
    """Writes from position `at`, dropping whatever stood there; returns the new length.

    What an interrupted writer left behind the last committed length thus disappears.
    """
    with path.open("r+b" if path.exists() else "w+b") as file:
        if file.seek(0, os.SEEK_END) < at:
            raise StoreError(f"{path} is shorter than the {at} bytes that were committed")
        file.seek(at)
        file.truncate()
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return at + len(data)
