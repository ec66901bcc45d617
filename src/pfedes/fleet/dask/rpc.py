"""The function that Dask calls on a worker for each of our calls.

A scheduler unpacks everything that it passes on. It sees only this light module; the arguments of
our calls, and torch with them, are loaded on the worker.
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
