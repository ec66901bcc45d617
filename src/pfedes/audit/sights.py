"""The parts of uploads that an attacker sees, as rows of numbers to learn from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from pfedes.audit.shadows import Numbers, Shadow
from pfedes.core.payload import Value
from pfedes.core.wire import Labels, MetaSpec
from pfedes.privacy.encoding import decoded, encoded
from pfedes.privacy.noise import NoiseStream, gaussian, variance_of
from pfedes.results.findings import Situation

LOWEST_BITS = 8  # of the 23 bits of a number's mantissa

AS_SENT = "what the numbers are"
SIGNS = "their signs"
BITS = "their lowest bits"
METADATA = "metadata that leave in a federation"
COMPUTING = "FLOPs, which leave in simulations only"

IDENTITY = {"run", "round", "base", "state", "seconds", "flops"}
"""Metadata of no use to an attacker, or (`flops`) looked at apart; `seconds` never repeat."""


@dataclass(frozen=True)
class Look:
    """A row for each client. `few` columns mean something each; of many, sums of them do."""

    name: str
    rows: Numbers
    few: bool = False


@dataclass(frozen=True)
class Seen:
    """The uploads of some clients as the server sees them in a situation.

    Rows of one group are alike: those of a cohort whose mean alone is seen.
    """

    changes: Numbers
    groups: NDArray[np.int64]

    def views(self, sent: Numbers) -> list[Look]:
        """The numbers, looked at in three ways; `sent` is what clients were sent."""
        uploads = (sent + self.changes).astype(np.float32)
        return [
            Look(AS_SENT, self.changes),
            Look(SIGNS, np.sign(self.changes)),
            Look(BITS, _lowest_bits(uploads)),
        ]


def numbers_sent(shadows: Sequence[Shadow]) -> Numbers:
    return np.array([shadow.sent for shadow in shadows])


def seen_by(situation: Situation, shadows: Sequence[Shadow], noise: "Noise") -> Seen:
    """The server's view of these clients, cohort by cohort."""
    changes = np.array([shadow.change for shadow in shadows])
    each = np.arange(len(shadows))
    if situation == "local noise":
        sizes = [shadow.size for shadow in shadows]
        return Seen(np.array([noise(c, s) for c, s in zip(changes, sizes, strict=True)]), each)
    if situation == "secure sum":
        cohorts = np.array([shadow.cohort for shadow in shadows])
        weights = np.array([shadow.weight for shadow in shadows])
        means = changes.copy()
        for cohort in np.unique(cohorts):
            members = cohorts == cohort
            means[members] = np.average(changes[members], axis=0, weights=weights[members])
        return Seen(means, cohorts)
    return Seen(changes, each)


class Noise:
    """The noise that a client adds to its change, after clipping the change to its norm.

    The same seed gives the same noise, so that an audit can be repeated.
    """

    def __init__(self, clip: float, noise: float, seed: int) -> None:
        self.clip = clip
        self.noise = noise
        self._stream = NoiseStream(sha256(f"audit {seed}".encode()).digest(), b"pfedes-audit")

    def __call__(self, change: Numbers, size: float | None = None) -> Numbers:
        """The change as it leaves; `size` is the norm of all of it, if this is a part."""
        if size is not None and size > self.clip:
            change = change * (self.clip / size)
        whole = encoded(change, self.clip)
        drowned = whole + gaussian(variance_of(self.noise), len(whole), self._stream)
        return decoded(drowned, self.clip)


def metadata_views(shadows: Sequence[Shadow], listed: Mapping[str, MetaSpec]) -> list[Look]:
    """The metadata that leave by the lists of a federation, and what simulations send besides."""
    classes = len(shadows[0].shares)
    names = sorted(listed.keys() & shadows[0].meta.keys() - IDENTITY)  # keys of a sum are random
    rows = [
        [column for name in names for column in _columns(shadow.meta[name], listed[name], classes)]
        for shadow in shadows
    ]
    found = [Look(METADATA, np.array(rows), few=True)] if rows[0] else []
    flops = [_number(shadow.meta.get("flops")) / shadow.samples for shadow in shadows]
    return [*found, Look(COMPUTING, np.array(flops)[:, None], few=True)]


def _columns(value: Value, spec: MetaSpec, classes: int) -> list[float]:
    if isinstance(spec, Labels) and isinstance(value, list):
        return [float(label in value) for label in range(classes)]
    return [] if isinstance(value, list | str) else [_number(value)]


def _number(value: Value | None) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _lowest_bits(numbers: NDArray[np.float32]) -> Numbers:
    low = (numbers.view(np.uint32) & (2**LOWEST_BITS - 1)).astype(np.uint8)
    bits = np.unpackbits(low[..., None], axis=-1)
    flat: Numbers = bits.reshape(len(numbers), -1).astype(np.float64)
    return flat
