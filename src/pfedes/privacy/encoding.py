"""Changes as whole numbers: clipped exactly, summed exactly, equal on every machine.

The unit is the clip over 2^24. A change is what a client's upload differs from its download by,
as one vector: tensors in the order of their names, one after the other.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pfedes.errors import TrainingError

Whole: TypeAlias = NDArray[np.int64]
Real: TypeAlias = NDArray[np.float64]

ONE = 2**24
"""The clip, in units."""

MOST_NUMBERS = 200_000
"""Noise grows with the root of how many numbers there are: more would be nothing but noise."""

SMALLER = 1 - 2**-20


def change_of(upload: Mapping[str, Tensor], download: Mapping[str, Tensor]) -> Real:
    """The difference between an upload and its download."""
    return flat(upload) - flat(download)


def flat(tensors: Mapping[str, Tensor]) -> Real:
    """All numbers of some tensors, in double precision."""
    return np.concatenate([np.zeros(0), *(_doubles(tensors[n]).ravel() for n in sorted(tensors))])


def encoded(change: Real, clip: float) -> Whole:
    """A change in units of clip / 2^24, rounded towards zero, its norm at most the clip.

    Raises a TrainingError if a number is not finite.
    """
    if not np.isfinite(change).all():
        raise TrainingError("the change to be clipped is not finite")
    size = math.sqrt(math.fsum((change * change).tolist()))
    shrunk = change * (clip / size) if size > clip else change
    whole = np.trunc(shrunk / (clip / ONE)).astype(np.int64)
    while squared_norm(whole) > ONE**2:  # the rounding of the lines above
        whole = np.trunc(whole * SMALLER).astype(np.int64)
    return whole


def squared_norm(whole: Whole) -> int:
    """The exact sum of squares, which may be larger than 64 bits."""
    return sum(number * number for number in whole.tolist())


def decoded(whole: Whole, clip: float, divisor: float = 1.0) -> Real:
    """Decodes a sum of encoded changes, and divides it."""
    return whole.astype(np.float64) * (clip / ONE) / divisor


def moved_by(state: Mapping[str, Tensor], change: Real) -> dict[str, Tensor]:
    """The tensors with a change added, rounded once to what they were."""
    moved, at = {}, {}
    start = 0
    for name in sorted(state):
        at[name] = start
        start += state[name].numel()
    for name, tensor in state.items():
        part = change[at[name] : at[name] + tensor.numel()].reshape(tuple(tensor.shape))
        moved[name] = torch.from_numpy(_doubles(tensor) + part).to(tensor.dtype)
    return moved


def digest_of(inputs: Mapping[str, Whole]) -> str:
    """SHA-256 of named vectors: what a release's noise is bound to."""
    sha = hashlib.sha256()
    for name in sorted(inputs):
        sha.update(json.dumps([name, len(inputs[name])]).encode())
        sha.update(inputs[name].astype("<i8").tobytes())
    return sha.hexdigest()


def _doubles(tensor: Tensor) -> Real:
    return np.asarray(tensor.detach().cpu().to(torch.float64).numpy(), dtype=np.float64)
