"""Which clients were in which releases, what that cost, and which may be in another one."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from pfedes.core.names import Name
from pfedes.errors import ConfigError
from pfedes.privacy.accounting import epsilon_of, epsilon_of_all, epsilon_of_replacement
from pfedes.privacy.config import PrivacyConfig
from pfedes.section import Section

NEIGHBOURS = "one client's changes left out"
TRUSTS = {
    "central": "the coordinator, who adds the noise",
    "distributed": "that the other clients add their noise",
    "local": "nobody",
}


class Release(Section):
    """One line of `privacy.jsonl`, written before anything of the release is shown to anybody."""

    round: int = Field(ge=1)
    inputs: str = Field(pattern="^[0-9a-f]{64}$")  # digest of what the noise was added to
    clients: tuple[Name, ...]
    z: float = Field(gt=0)  # the noise, over the clip
    q: float = Field(1.0, gt=0, le=1)  # the probability of being asked, if that was secret
    run: Annotated[str, Field(exclude_if=lambda run: not run)] = ""  # where an account has several

    @property
    def identity(self) -> tuple[int, str]:
        """The same release again has the same noise, and tells nothing new."""
        return self.round, self.inputs


class Budget:
    """The privacy loss of every client, and what is left."""

    def __init__(self, config: PrivacyConfig, releases: Iterable[Release] = ()) -> None:
        self.config = config
        self._known: set[tuple[int, str]] = set()
        self._spent: dict[str, Counter[float]] = {}
        self._costs: dict[frozenset[tuple[float, int]], float] = {}
        for release in releases:
            self.add(release)

    def __contains__(self, release: Release) -> bool:
        return release.identity in self._known

    def __len__(self) -> int:
        return len(self._known)

    def add(self, release: Release) -> None:
        if release in self:
            return
        self._known.add(release.identity)
        for client in release.clients:
            self._spent.setdefault(client, Counter())[release.z] += 1

    def releases(self, client: str) -> int:
        """How many releases a client is in."""
        return self.spent(client).total()

    def epsilon(self, client: str) -> float:
        return self._cost(self.spent(client))

    def epsilon_of_replacement(self, client: str) -> float:
        """The same, if a client's data were replaced and not left out: a sum moves by twice C."""
        return self._cost({noise / 2: count for noise, count in self.spent(client).items()})

    def _cost(self, releases: Mapping[float, int]) -> float:
        key = frozenset(releases.items())  # most clients have spent the same
        if key not in self._costs:
            self._costs[key] = epsilon_of_all(releases, self.config.delta)
        return self._costs[key]

    def eligible(self, clients: Iterable[str]) -> list[str]:
        """Those whose next release stays within epsilon."""
        limit = self.config.epsilon
        next_one = Counter({self.config.noise: 1})
        return [
            client
            for client in clients
            if not limit or self._cost(self.spent(client) + next_one) <= limit
        ]

    def fewest_first(
        self, clients: Sequence[str], count: int, rng: np.random.Generator
    ) -> list[str]:
        """Those in the fewest releases; which of equal ones is drawn."""
        shuffled = [clients[index] for index in rng.permutation(len(clients))]
        return sorted(shuffled, key=self.releases)[:count]

    def spent(self, client: str) -> Counter[float]:
        """How many releases a client is in, by their noise."""
        return Counter(self._spent.get(client, Counter()))

    def summary(self, clients: Collection[str], numbers: int, uploads: int) -> dict[str, Any]:
        """The fields of `summary.json`."""
        config = self.config
        names = sorted(clients)
        return {
            "mode": config.mode,
            "clip": config.clip,
            "z": config.noise,
            "delta": config.delta,
            "limit": config.epsilon or None,
            "releases": [self.releases(name) for name in names],
            "epsilon": [self.epsilon(name) for name in names],
            "epsilon_replacement": max(map(self.epsilon_of_replacement, names)),
            "ratio": ratio(config, numbers, uploads),
            "neighbours": NEIGHBOURS,
            "trusts": TRUSTS[config.mode],
        }


def ratio(config: PrivacyConfig, numbers: int, uploads: int) -> float:
    """The length of the noise on the clients' mean change, over that of the longest change."""
    match config.mode:
        case "central":
            return config.noise * math.sqrt(numbers) / uploads
        case "distributed":  # each adds enough for all but one of `least`
            return config.noise * math.sqrt(numbers / (uploads * (config.least - 1)))
        case _:
            return config.noise * math.sqrt(numbers / uploads)


@dataclass(frozen=True)
class Prospect:
    """The privacy cost of a run for its clients, known before its first round."""

    config: PrivacyConfig
    releases: int  # of each client, if none fails
    uploads: int  # in a round
    numbers: int  # in a change

    @property
    def epsilon(self) -> float:
        return epsilon_of(self.releases, self.config.noise, self.config.delta)

    @property
    def ratio(self) -> float:
        return ratio(self.config, self.numbers, self.uploads)

    def lines(self) -> Iterator[str]:
        """The figures, for people."""
        config = self.config
        yield (
            f"privacy: {config.mode}, up to {self.releases} releases of each client with noise of "
            f"{config.noise:g} x clip: epsilon {self.epsilon:.2f} at delta {config.delta:g} "
            f"({self._replacement:.2f} if a client's data were replaced); "
            f"trusts {TRUSTS[config.mode]}"
        )
        if config.epsilon and self.epsilon > config.epsilon:
            yield f"privacy: the run ends when epsilon {config.epsilon:g} is spent"

    def warnings(self) -> Iterator[str]:
        """A warning if the noise is longer than the largest change."""
        if self.ratio <= 1:
            return
        quiet = self.config.noise / self.ratio
        price = epsilon_of(self.releases, quiet, self.config.delta)
        yield (
            f"the noise is {self.ratio:.1f} times as long as the largest change of one "
            f"client. With {self.uploads} uploads of {self.numbers:,} numbers, noise as long as "
            f"that change has epsilon {price:.3g}. More clients in a round help; a few "
            "participants can have a secure sum, limits and an audit instead (docs/privacy.md)"
        )

    @property
    def _replacement(self) -> float:
        return epsilon_of_replacement(self.releases, self.config.noise, self.config.delta)


def check_affordable(config: PrivacyConfig, clients: int) -> None:
    """Refuses a budget that means nothing, or that no round fits in; raises ConfigError."""
    if config.delta >= 1 / clients:
        raise ConfigError(
            f"privacy.delta = {config.delta:g}: with {clients} clients it must be below "
            f"{1 / clients:g}, or the data of one client could be published in full"
        )
    first = epsilon_of(1, config.noise, config.delta)
    if config.epsilon and first > config.epsilon:
        raise ConfigError(
            f"privacy.epsilon = {config.epsilon:g}: with noise of {config.noise:g} x clip the "
            f"first release already costs {first:.2f}"
        )
