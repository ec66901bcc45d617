"""The result of a secure sum; simulations add up the same integers without masks."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from pfedes.core.protocol import SUMMAND, Fleet, Reply
from pfedes.securesum.collector import Total


@runtime_checkable
class SecretlySumming(Protocol):
    """A fleet whose clients send no upload: they mask them, and the masks cancel in the sum."""

    def total(self, round: int, replies: Sequence[Reply]) -> Total:
        """The sum of what these clients have ready, or of those left; else a WireError."""
        ...


def total_of(fleet: Fleet, round: int, replies: Sequence[Reply]) -> Total:
    """The sum of a round's uploads, modulo 2^64, and whose are in it."""
    if isinstance(fleet, SecretlySumming):
        return fleet.total(round, replies)
    summands = [reply.payload.tensors[SUMMAND].numpy().astype(np.uint64) for reply in replies]
    names = tuple(reply.client for reply in replies)
    return Total(names, np.add.reduce(summands).astype(np.int64))


def with_masked(reply: Reply, total: Total) -> Reply:
    """A reply with what its client sent for the sum, which the rows count."""
    if (masked := total.masked.get(reply.client)) is None:
        return reply
    tensors = {SUMMAND: torch.from_numpy(masked)}
    return Reply(reply.client, type(reply.payload)(tensors, reply.payload.meta))
