"""Where changes are clipped and noise is added: at the server, at the clients, or at both."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pfedes.core.seeding import Streams
from pfedes.errors import WireError
from pfedes.privacy.config import PrivacyConfig
from pfedes.privacy.encoding import (
    ONE,
    Real,
    Whole,
    change_of,
    decoded,
    digest_of,
    encoded,
    moved_by,
    squared_norm,
)
from pfedes.privacy.noise import KEY_BYTES, gaussian, stream_of_release, variance_of

MOST_WEIGHT = 2**24
"""The most samples that a client counts for, so that 1,024 clients cannot overflow."""

MOST_DEVIATIONS = 4  # of the noise in a sum, by its length: more is as good as impossible


@dataclass(frozen=True)
class Mechanism:
    """Applies `[privacy]` to changes, for the owner of the key of the noise."""

    config: PrivacyConfig
    least_uploads: int  # a round with fewer has failed
    key: Callable[[str], bytes]  # of the server (""), or of a client by its name
    run: str = ""  # where keys outlast runs, each run has noise of its own

    @property
    def own_variance(self) -> int:
        """The variance of each client's noise on its own change, in squared units; 0 = none."""
        match self.config.mode:
            case "local":
                return variance_of(self.config.noise)
            case "distributed":
                # Each knows its own share: the others' must be enough.
                others = max(self.config.least, self.least_uploads) - 1
                return variance_of(self.config.noise, others)
            case _:
                return 0

    @property
    def server_variance(self) -> int:
        """The variance of the noise that the server adds to the sum."""
        return variance_of(self.config.noise) if self.config.mode == "central" else 0

    def contribution(
        self, client: str, round: int, upload: Mapping[str, Tensor], download: Mapping[str, Tensor]
    ) -> Whole:
        """A client's change, clipped, with the noise that is its own to add."""
        whole = encoded(change_of(upload, download), self.config.clip)
        inputs = digest_of({client: whole})
        return whole + self._noise(client, self.own_variance, round, inputs, len(whole))

    def noised(
        self, client: str, round: int, upload: Mapping[str, Tensor], download: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """The upload in mode local: the download, moved by the client's noisy change."""
        change = decoded(self.contribution(client, round, upload, download), self.config.clip)
        moved = moved_by(download, change)
        return {name: moved[name] for name in upload}

    def summand(
        self,
        client: str,
        round: int,
        upload: Mapping[str, Tensor],
        download: Mapping[str, Tensor],
        samples: int,
    ) -> Whole:
        """A client's summand in a secure sum: its clipped change, with its part of the noise.

        Without noise it counts by its samples, whose number is the last one.
        """
        whole = self.contribution(client, round, upload, download)
        if self.config.noisy:
            return whole
        weight = min(samples, MOST_WEIGHT)
        return np.append(whole * weight, np.int64(weight))

    def mean_of(self, total: Whole, clients: int) -> Real:
        """The mean change, from a secure sum of so many clients' summands; else a WireError.

        No participant can be named for a sum that cannot be right.
        """
        weight, change = clients, total
        if not self.config.noisy:
            weight, change = int(total[-1]), total[:-1]
        if not clients <= weight <= clients * MOST_WEIGHT:
            raise WireError(f"the sum counts {weight} samples of {clients} clients")
        noise = clients * self.own_variance * len(change)
        if squared_norm(change) > (ONE * weight + MOST_DEVIATIONS * math.isqrt(noise)) ** 2:
            raise WireError("the sum is longer than clipped changes can be")
        return decoded(change, self.config.clip, weight)

    def clipped(self, upload: Mapping[str, Tensor], download: Mapping[str, Tensor]) -> Whole:
        """The clipped change that is added to the sum in mode central."""
        return encoded(change_of(upload, download), self.config.clip)

    def mean(self, changes: Mapping[str, Whole], round: int) -> Real:
        """The clipped changes' mean, with the server's noise on their sum."""
        total = np.sum(list(changes.values()), axis=0)
        noise = self._noise("", self.server_variance, round, digest_of(changes), len(total))
        return decoded(total + noise, self.config.clip, len(changes))

    def _noise(self, whose: str, variance: int, round: int, inputs: str, count: int) -> Whole:
        if not variance:
            return np.zeros(count, dtype=np.int64)
        stream = stream_of_release(self.key(whose), self.run, round, inputs)
        return gaussian(variance, count, stream)


@dataclass(frozen=True)
class SimulatedPrivacy:
    """The clients' part in a simulation: noise follows from the seed, and the run counts it."""

    mechanism: Mechanism

    def check(self, client: str, run: str, round: int) -> None:
        """Clients of a simulation have no limits of their own."""

    def leaving(
        self,
        run: str,
        client: str,
        round: int,
        upload: dict[str, Tensor],
        download: Mapping[str, Tensor],
    ) -> dict[str, Tensor]:
        """The noisy upload that a client sends; equal runs send equal ones."""
        return self.mechanism.noised(client, round, upload, download)


def reproducible_key(streams: Streams) -> Callable[[str], bytes]:
    """Keys that follow from the seed, for simulations: such noise protects no data."""

    def key(whose: str) -> bytes:
        return streams.number("noise", client=whose).to_bytes(KEY_BYTES, "big")

    return key
