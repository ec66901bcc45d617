"""Directories that a user names."""

from pathlib import Path

from pfedes.errors import DataError
from pfedes.home import at_home
from pfedes.own import said


def directory(given: str, what: str) -> Path:
    """A directory that is there and can be read; or the line that says why not."""
    path = at_home(given)
    try:
        there = path.is_dir()
        if there:
            next(path.iterdir(), None)  # searching it would pass over what is forbidden
    except OSError as error:
        raise DataError(f"{what} {given!r:.80}: {reason(error)}") from None
    if not there:
        raise DataError(f"{what} {given!r} does not exist")
    return path


def reason(error: Exception) -> str:
    """What the system or a reader has to say, without the file, which the caller names."""
    return getattr(error, "strerror", None) or said(error)
