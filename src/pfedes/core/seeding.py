"""Named random streams: one seed, and a generator of its own for every purpose.

A stream depends only on (seed, purpose, round, client), so results depend neither on the order
in which clients run nor on the process they run in.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


class Streams:
    """All random streams of one run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def number(self, purpose: str, *, round: int = 0, client: str = "") -> int:
        """The 63-bit seed of one stream."""
        name = json.dumps([self.seed, purpose, round, client]).encode()
        return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") >> 1

    def torch(self, purpose: str, *, round: int = 0, client: str = "") -> torch.Generator:
        return torch.Generator().manual_seed(self.number(purpose, round=round, client=client))

    def numpy(self, purpose: str, *, round: int = 0, client: str = "") -> np.random.Generator:
        return np.random.default_rng(self.number(purpose, round=round, client=client))

    @contextmanager
    def ambient(self, purpose: str, *, round: int = 0, client: str = "") -> Iterator[None]:
        """Seeds torch's global generator, for code that takes no other (initialisation, dropout).

        The generator is restored afterwards.
        """
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(self.number(purpose, round=round, client=client))
            yield
