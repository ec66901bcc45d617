"""The server's side of a secure sum: it learns the sum of one set of members, and no more.

    begin    who is ready: a set of members, named by its digest T
    mask     every member sends its value, masked for T, and a sealed share for every other member;
             if one does not, the rest are a new set, and begin again
    seal     all masked values are on the disk: from here on it is this set or none
    open     members send the shares that they hold; with those of more than two thirds the members'
             own masks are known, and the others cancel

What was sealed is in one file per round, so that a server that was killed continues where it was.
"""

import base64
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from pydantic import ValidationError

from pfedes.errors import DamageError, WireError
from pfedes.files import make_private_directory, read, remove, write_atomically
from pfedes.section import Section
from pfedes.securesum.masking import (
    KEY_BYTES,
    Integers,
    Ready,
    check_members,
    digest_of,
    own_mask,
)
from pfedes.securesum.member import SEALED_BYTES, Masked
from pfedes.securesum.shamir import SHARE_BYTES, join, threshold, weights_at_zero

log = logging.getLogger(__name__)


class Exchange(Protocol):
    """How the server reaches members; answers come in any order, and not from everybody."""

    def mask(self, members: Sequence[Ready]) -> Iterator[tuple[str, Masked]]:
        """Asks every member to mask its value for these members."""
        ...

    def open(
        self, digest: bytes, sealed: Mapping[str, Sequence[bytes]]
    ) -> Iterator[tuple[str, Sequence[bytes]]]:
        """Asks members to open, each with the shares that were made for it."""
        ...


@dataclass(frozen=True)
class Total:
    """A sum and whose values are in it."""

    names: tuple[str, ...]
    values: Integers
    masked: Mapping[str, Integers] = field(default_factory=dict)  # what travelled, by member


class Sealed(Section):
    """A set of members whose masked values are all there; and their sum, once it is known."""

    run: str
    round: int
    asked: str
    members: tuple[tuple[str, str, str], ...]  # names, keys and nonces
    masked: dict[str, str]
    shares: dict[str, tuple[str, ...]]
    attached: dict[str, str]
    total: str = ""


class Collector:
    """One round's sum at the server. Its file is there from `seal` on, until `remove`."""

    def __init__(self, path: Path, run: str, round: int, asked: str, size: int) -> None:
        """`asked` is the digest of what all are asked for; each sends `size` integers."""
        self.path = path
        self.run = run
        self.round = round
        self.asked = asked
        self.size = size
        self.members: tuple[Ready, ...] = ()
        self.attached: dict[str, str] = {}  # data of the members, attached when the sum is sealed
        self._masked: dict[str, Masked] = {}
        self._total: Integers | None = None

    @property
    def digest(self) -> bytes:
        return digest_of(self.run, self.round, self.members, self.asked)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    def begin(self, members: Sequence[Ready]) -> None:
        """A set of members, of whom nothing is known yet."""
        if self.path.exists():
            raise WireError("a sum that was sealed can have no other members")
        ordered = tuple(sorted(members, key=lambda member: member.name))
        check_members(ordered)
        self.members, self._masked = ordered, {}

    def take_masked(self, name: str, masked: Masked) -> None:
        """A member's masked value, if it has the form that is expected."""
        if name not in self.names:
            raise WireError(f"{name!r:.100} is not a member of this sum")
        if masked.values.dtype != np.int64 or masked.values.shape != (self.size,):
            raise WireError(f"{masked.values.shape} {masked.values.dtype}, expected {self.size}")
        if [len(share) for share in masked.shares] != [SEALED_BYTES] * len(self.members):
            raise WireError("not a sealed share for every member")
        self._masked[name] = masked

    @property
    def complete(self) -> tuple[Ready, ...]:
        """The members that have masked."""
        return tuple(member for member in self.members if member.name in self._masked)

    def seal(self, attached: Mapping[str, str]) -> None:
        """Writes all masked values; nothing may be opened before. `attached` is kept with them."""
        if len(self.complete) < len(self.members):
            raise WireError("not all members have masked")
        self.attached = dict(attached)
        make_private_directory(self.path.parent)
        self._write()

    def sealed_for(self, name: str) -> list[bytes]:
        """The shares that the members made for one of them."""
        place = self.names.index(name)
        return [self._masked[member].shares[place] for member in self.names]

    def sum(self, opened: Mapping[str, Sequence[bytes]]) -> Total:
        """The sum, from the shares of enough members; it is written before it is returned."""
        if self._total is None:
            self._total = self._unmasked(opened)
            self._write()
        return self._as_total(self._total)

    @property
    def known(self) -> Total | None:
        """The sum, if it is known already."""
        return None if self._total is None else self._as_total(self._total)

    def _as_total(self, values: Integers) -> Total:
        return Total(self.names, values, {name: m.values for name, m in self._masked.items()})

    @property
    def needed(self) -> int:
        """How many members must open."""
        return threshold(len(self.members))

    def check_opened(self, opened: Sequence[bytes]) -> None:
        if [len(share) for share in opened] != [SHARE_BYTES] * len(self.members):
            raise WireError("not a share of every member's seed")

    def remove(self) -> None:
        """Once the round is committed."""
        remove(self.path)

    def _unmasked(self, opened: Mapping[str, Sequence[bytes]]) -> Integers:
        names, digest = self.names, self.digest
        points = {names.index(name) + 1: shares for name, shares in sorted(opened.items())}
        chosen = dict(list(points.items())[: self.needed])
        if len(chosen) < self.needed:
            raise WireError(f"{len(chosen)} members have opened, {self.needed} are needed")
        weights = weights_at_zero(list(chosen))
        total = np.zeros(self.size, np.uint64)
        for place, name in enumerate(names):
            secret = join({point: shares[place] for point, shares in chosen.items()}, weights)
            if secret >= 2 ** (8 * KEY_BYTES):
                raise WireError(f"the shares of {name}'s seed do not fit together")
            seed = secret.to_bytes(KEY_BYTES, "big")
            total += self._masked[name].values.astype(np.uint64)
            total -= own_mask(seed, digest, self.size)
        return total.astype(np.int64)

    def _write(self) -> None:
        sealed = Sealed(
            run=self.run,
            round=self.round,
            asked=self.asked,
            members=tuple((m.name, m.key.hex(), m.nonce.hex()) for m in self.members),
            masked={name: _to_text(_bytes(m.values)) for name, m in self._masked.items()},
            shares={name: tuple(map(_to_text, m.shares)) for name, m in self._masked.items()},
            attached=self.attached,
            total="" if self._total is None else _to_text(_bytes(self._total)),
        )
        write_atomically(self.path, sealed.model_dump_json().encode())


def reopened(path: Path) -> Collector | None:
    """The sum that was sealed before the server ended; None if none was."""
    if not path.exists():
        return None
    try:
        sealed = Sealed.model_validate_json(read(path))
        members = tuple(
            Ready(name, bytes.fromhex(key), bytes.fromhex(nonce))
            for name, key, nonce in sealed.members
        )
        values = {name: _integers(text) for name, text in sealed.masked.items()}
        size = len(next(iter(values.values())))
        collector = Collector(path, sealed.run, sealed.round, sealed.asked, size)
        collector.members, collector.attached = members, sealed.attached
        for name, shares in sealed.shares.items():
            data = tuple(base64.b64decode(share, validate=True) for share in shares)
            collector.take_masked(name, Masked(values[name], data))
        collector._total = _integers(sealed.total) if sealed.total else None
    except (ValidationError, ValueError, KeyError, StopIteration, WireError):
        raise DamageError(f"{path} is damaged") from None
    return collector


def collect(
    collector: Collector,
    ready: Sequence[Ready],
    exchange: Exchange,
    *,
    least: int,
    attached: Callable[[Sequence[str]], Mapping[str, str]] = lambda names: {},
    waiting: Callable[[], bool] = lambda: False,
) -> Total:
    """A round's sum; a WireError if there is none, and then nothing was learned.

    Members that do not mask are left out, down to `least` members. Those that do not open are
    asked again while `waiting` says so. A collector that was sealed before continues from there,
    without `ready`.
    """
    if not collector.path.exists():
        _mask(collector, ready, exchange, least)
        collector.seal(attached(collector.names))
    if (known := collector.known) is not None:
        return known
    return collector.sum(_open(collector, exchange, waiting))


def _mask(collector: Collector, ready: Sequence[Ready], exchange: Exchange, least: int) -> None:
    members = tuple(ready)
    while len(members) >= least:
        collector.begin(members)
        for name, masked in exchange.mask(collector.members):
            try:
                collector.take_masked(name, masked)
            except WireError as error:
                log.warning("unusable masked value of %s: %s", name, error)
        if len(collector.complete) == len(members):
            return
        lost = sorted({m.name for m in members} - {m.name for m in collector.complete})
        log.warning("round %d: the sum is done without %s", collector.round, ", ".join(lost))
        members = collector.complete
    raise WireError(f"{len(members)} can take part in the sum, {least} are the fewest")


def _open(
    collector: Collector, exchange: Exchange, waiting: Callable[[], bool]
) -> dict[str, Sequence[bytes]]:
    opened: dict[str, Sequence[bytes]] = {}
    while True:
        asked = {n: collector.sealed_for(n) for n in collector.names if n not in opened}
        for name, shares in exchange.open(collector.digest, asked):
            try:
                collector.check_opened(shares)
            except WireError as error:
                log.warning("unusable shares from %s: %s", name, error)
                continue
            opened[name] = shares
        if len(opened) >= collector.needed or not waiting():
            return opened


def _bytes(values: Integers) -> bytes:
    return values.astype("<i8").tobytes()


def _integers(text: str) -> Integers:
    return np.frombuffer(base64.b64decode(text, validate=True), "<i8").astype(np.int64)


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()
