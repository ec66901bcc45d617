"""Where a client's model comes from: what it learned from, how well, and what left the client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pfedes.core.client import Client
from pfedes.core.measures import METRICS, Metric
from pfedes.core.scores import Scores
from pfedes.results.disclosure import Direction, Private, lists_of, private_of, told_by
from pfedes.store.client_store import ClientStore

if TYPE_CHECKING:
    from pfedes.population.simulation import Simulation


@dataclass(frozen=True)
class Sent:
    """The uploads of a client up to the round of its model."""

    told: tuple[str, ...]  # on its card, before the first round
    rounds: int  # that it answered
    floats: int  # in all of them
    allowed: Direction  # the list that each answer was checked against
    private: Private  # what an answer was compared with


@dataclass(frozen=True)
class Provenance:
    """All that is known about a client's model besides itself."""

    client: str
    architecture: str
    method: str
    settings: Mapping[str, Any]  # the method's own
    data: str  # '' = the client's own data, not part of a common data set
    data_digest: str
    samples: Mapping[str, tuple[int, int, int]]  # of each class it has: train, validation, test
    scores: Scores  # of this very model on the client's own samples
    round: int
    rounds: int  # planned
    trained: int  # the last round in which the client itself trained; 0 = never
    best: bool  # whether validation chose the round
    metric: str  # what of validation chose it, in words
    chosen_over: str  # whose validation
    seed: int
    run: str
    pfedes: str
    commit: str | None
    torch: str
    sent: Sent

    @property
    def classes(self) -> list[str]:
        """The classes that it was trained on."""
        return [name for name, (train, _, _) in self.samples.items() if train]


@dataclass(frozen=True)
class Moment:
    """The round after which a client's model is wanted, and the way there."""

    run: str
    round: int
    version: int  # the round in which the client itself last trained
    best: bool  # whether validation chose the round
    answers: Sequence[int]  # numbers in each of its answers until then
    about: Mapping[str, Any]  # what the run ran on
    metric: Metric = "accuracy"  # what chose the best round
    chosen_over: str = "all clients"


def provenance_of(
    simulation: "Simulation", store: ClientStore, moment: Moment, client: Client, scores: Scores
) -> Provenance:
    """The facts about a client's model at a certain round."""
    config, about, name = simulation.config, moment.about, client.name
    card = simulation.population.card(name, simulation.method.needs)
    return Provenance(
        client=name,
        architecture=simulation.population.model_name(name),
        method=config.method.name,
        settings=config.method.model_dump(exclude={"name"}, by_alias=True),
        data="" if config.participants else _without_place(config.data.source),
        data_digest=simulation.population.digest,
        samples=_samples(client, simulation.population.class_names),
        scores=scores,
        round=moment.round,
        rounds=config.train.rounds,
        trained=moment.version,
        best=moment.best,
        metric=METRICS[moment.metric],
        chosen_over=moment.chosen_over,
        seed=config.seed,
        run=moment.run,
        pfedes=str(about.get("pfedes", "?")),
        commit=str(about["commit"]) if about.get("commit") else None,
        torch=str(about["torch_build"]),
        sent=Sent(
            told=told_by(card),
            rounds=len(moment.answers),
            floats=sum(moment.answers),
            allowed=lists_of(card, simulation, over_network=simulation.over_network)[1],
            private=private_of(store, moment.run, simulation, name, moment.version),
        ),
    )


def _samples(client: Client, names: tuple[str, ...]) -> dict[str, tuple[int, int, int]]:
    splits = (client.train, client.val, client.test)
    counts = [np.bincount(split.labels.cpu(), minlength=len(names)).tolist() for split in splits]
    rows = zip(names, *counts, strict=True)
    return {name: (train, val, test) for name, train, val, test in rows if train + val + test}


def _without_place(source: str) -> str:
    """A directory's last name will do: facts are published, and paths tell about their owners."""
    kind, _, place = source.partition(":")
    return f"{kind}:{place.rstrip('/').rpartition('/')[2]}" if kind == "folder" else source
