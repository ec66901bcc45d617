"""What Dask itself is told to call on a worker, for every call of ours.

A scheduler unpacks all that it passes on. It gets to see this light module alone: what our calls
are about, and torch with it, is loaded where the work is done.
"""

import pickle
from collections.abc import Callable
from importlib import import_module
from typing import Any


def pack(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, str, bytes]:
    """A call of a function of ours, ready to travel."""
    return function.__module__, function.__name__, pickle.dumps(arguments)


def perform(module: str, name: str, packed: bytes, *placed: bytes) -> Any:
    """Makes the call; what was placed on the worker beforehand comes first."""
    return getattr(import_module(module), name)(*placed, *pickle.loads(packed))
