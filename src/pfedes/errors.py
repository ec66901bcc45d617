"""Everything pfedes raises on purpose.

    PfedesError
    ├── ConfigError      a key, value or name in the configuration is wrong
    ├── DataError        a data set is missing, damaged or not what it claims to be
    │   └── PartitionError   the data cannot be dealt to that many clients
    ├── ModelError       a model cannot be built for this input
    ├── MethodError      a method cannot serve these clients
    ├── TrainingError    a client's numbers are no longer finite
    ├── FailedRunError   the method's own code failed at the server, or at every client alike
    ├── ClusterError     a cluster cannot be reached, or has no worker for the work
    ├── WireError        a payload carries something that is not on the allow-list
    │   └── RefusedError     a participant did not agree to what it was asked for
    │       └── BudgetError      a release would cost more privacy than a participant allows
    ├── ManyError        more than one of these at once
    └── StoreError       a run directory is missing, taken or damaged
        ├── DamageError      a file of a run is missing, damaged or foreign
        └── DiskError        a file cannot be written or read: no space, no permission

The command line prints any of them as one line and exits with code 2, or with code 1 for a
FailedRunError: the input was fine, the run was not.
"""

import difflib
from collections.abc import Iterable, Sequence

MOST_NAMES = 40  # in one line; a run may have thousands of clients


class PfedesError(Exception):
    """Base of all errors that a user can cause and fix."""

    exit_code = 2
    """The exit code of a command that ends with this error."""


class ConfigError(PfedesError):
    """A key, value or name in the configuration is wrong."""


class DataError(PfedesError):
    """A data set is missing, damaged or not what it claims to be."""


class PartitionError(DataError):
    """The data cannot be divided among so many clients."""


class ModelError(PfedesError):
    """A model cannot be built for this input."""


class MethodError(PfedesError):
    """A method cannot serve these clients."""


class TrainingError(PfedesError):
    """A client's loss or parameters are no longer finite."""


class FailedRunError(PfedesError):
    """The method's own code failed at the server, or at every client alike.

    Args:
        what: What failed, where.
        remedy: What to do about it, which a table leaves out.
    """

    exit_code = 1

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}. {remedy}" if remedy else what)
        self.what = what


class ClusterError(PfedesError):
    """A cluster cannot be reached, or has no worker that can do the work."""


class WireError(PfedesError):
    """A payload carries something that is not on the allow-list."""


class RefusedError(WireError):
    """A participant did not agree to what it was asked for."""


class BudgetError(RefusedError):
    """A release would cost more privacy than a participant allows."""


class ManyError(PfedesError):
    """Several things are wrong at once.

    Args:
        each: One error for each, so that all can be fixed together.
    """

    def __init__(self, each: Sequence[PfedesError]) -> None:
        super().__init__("; ".join(map(str, each)))
        self.each = tuple(each)


class StoreError(PfedesError):
    """A run directory is missing, in use or damaged."""


class DamageError(StoreError):
    """A file of a run is missing, damaged, or belongs to another run or client."""


class DiskError(StoreError):
    """A file cannot be written or read: no space, no permission."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The line that tells a user which name was meant."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    some = f"known: {', '.join(names[:MOST_NAMES])}{more}"
    hint = f"did you mean {near[0]!r}?" if near else some
    return f"unknown {kind} {name!r}; {hint}"


def said(error: Exception) -> str:
    """The text of an exception from other code, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def kind_and_text(error: Exception) -> str:
    """The same, for errors that say little without their kind."""
    return f"{type(error).__name__}: {said(error)}"
