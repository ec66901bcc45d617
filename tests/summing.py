"""Members of a secure sum and its server in one process, where they can fail and end anywhere."""

import base64
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfedes.securesum.collector import Collector, Total, collect, reopened
from pfedes.securesum.masking import Integers, Ready
from pfedes.securesum.member import Masked, Member

RUN = "run-1"
ASKED = "the same of all"
SIZE = 5
NAMES = ("ada", "ben", "cleo", "dora", "emil")


class KilledError(BaseException):
    """A process ended here, as if by kill -9."""


@dataclass
class Cohort:
    """Members with values, and whose answers get lost: `lost` by kind and name."""

    home: Path
    names: Sequence[str] = NAMES
    least: int = 3
    lost: set[tuple[str, str]] = field(default_factory=set)
    opened: dict[str, set[bytes]] = field(default_factory=dict)
    own: dict[str, Integers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(len(self.names))
        ends = np.iinfo(np.int64)
        for name in self.names:
            values = rng.integers(ends.min, ends.max, SIZE, np.int64, endpoint=True)
            self.own[name] = values

    def member(self, name: str) -> Member:
        """As it is after a restart: it knows what is on its disk."""
        return Member(self.home / name, RUN, name)

    def ready(self, round: int = 1) -> list[Ready]:
        """Who is ready in a round; a member that ends over it is asked once more."""
        found = []
        for name in self.names:
            nonce = unless_killed(lambda name=name: self.nonce(round, name))
            nonce = nonce or self.nonce(round, name)
            found.append(Ready(name, self.member(name).key, nonce))
        return found

    def nonce(self, round: int, name: str) -> bytes:
        return self.member(name).ready(round, self.own[name], ASKED)

    @property
    def keys(self) -> dict[str, bytes]:
        return {name: self.member(name).key for name in self.names}

    def sum_of(self, names: Sequence[str]) -> Integers:
        values = [self.own[name].astype(np.uint64) for name in names]
        total: Integers = np.add.reduce(values).astype(np.int64)
        return total

    def collector(self, round: int = 1) -> Collector:
        path = self.home / "server" / f"{round}.json"
        return reopened(path) or Collector(path, RUN, round, ASKED, SIZE)

    def collect(self, round: int = 1) -> Total:
        times = iter((True, True, False))  # who does not open is asked three times
        return collect(
            self.collector(round),
            self.ready(round),
            Line(self, round),
            least=self.least,
            waiting=lambda: next(times),
        )


@dataclass
class Line:
    """Carries messages to members, which may end before, or while, they answer."""

    cohort: Cohort
    round: int

    def mask(self, members: Sequence[Ready]) -> Iterator[tuple[str, Masked]]:
        cohort = self.cohort
        for name in [member.name for member in members]:
            if ("mask", name) not in cohort.lost and (
                answer := unless_killed(
                    lambda name=name: cohort.member(name).mask(
                        self.round, cohort.own[name], members, cohort.keys, cohort.least
                    )
                )
            ):
                yield name, answer

    def open(
        self, digest: bytes, sealed: Mapping[str, Sequence[bytes]]
    ) -> Iterator[tuple[str, Sequence[bytes]]]:
        for name, shares in sealed.items():
            if ("open", name) not in self.cohort.lost and (
                answer := unless_killed(
                    lambda name=name, shares=shares: self.cohort.member(name).open(
                        self.round, digest, shares
                    )
                )
            ):
                self.cohort.opened.setdefault(name, set()).add(digest)
                yield name, answer


def unless_killed(work: Callable[..., Any]) -> Any:
    """A member's answer; None if its process ended over it."""
    try:
        return work()
    except KilledError:
        return None


class Killer:
    """Ends whoever makes the n-th call that changes the disk, before it has its effect.

    Before the next one is the same for the disk as after this one.
    """

    def __init__(self, patch: pytest.MonkeyPatch, at: int) -> None:
        self.calls = 0
        self.at = at
        for name in ("fsync", "replace"):
            patch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                raise KilledError
            return call(*args)

        return counted


def forms_of(values: Integers) -> list[bytes]:
    """Some of the numbers as bytes, in base64 wherever they begin in it, and as text.

    As text only several of them together: one of few digits is found anywhere by chance.
    """
    some = values[values != 0][:4]
    raw = some.astype("<i8").tobytes()
    encoded = [base64.b64encode(bytes(shift) + raw)[4 : -4 or None] for shift in range(3)]
    texts = [separator.join(map(str, some.tolist())).encode() for separator in (", ", ",", " ")]
    return [raw, raw.hex().encode(), *encoded, *texts]
