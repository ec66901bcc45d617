"""Ada, a participant with her own model and data, and what a coordinator sends her."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pfedes import Participant, configure
from pfedes.config import Config
from pfedes.core.client import Card
from pfedes.core.payload import Payload
from pfedes.core.protocol import Failure, Reply, Scored, Task
from pfedes.deploy.participant.handler import ParticipantHandler, own_config
from pfedes.deploy.versions import enrolment_message
from pfedes.fleet.allow_list import told_card
from pfedes.fleet.client_host import ClientHost, host_of
from pfedes.models.extractor import extractor_for
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore

OWN = Path(__file__).parents[1] / "examples" / "own"


DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def terms(**settings: Any) -> Config:
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    base = {
        "federation.classes": DIGITS,
        "federation.participants": ["ada", "ben"],
        "train.rounds": 3,
        "train.epochs": 1,
        "method.extractor_epochs": 1,
    }
    return configure(settings={**base, **chosen})


def ada(state: Path, **more: Any) -> Participant:
    return Participant(
        name="ada",
        model=f"{OWN}/models.py:mlp",
        data=f"{OWN}/data.py:small",
        state=str(state),
        **more,
    )


def enrolled(guest: ParticipantHandler, config: Config | None = None) -> dict[str, Any]:
    return guest.handle(enrolment_message("ada", (config or terms()).to_toml())).meta


def task(round: int, base: int, run: str = "run", **tensors: torch.Tensor) -> Task:
    extractor = extractor_for((3, 8, 8), 8, "relu")
    torch.manual_seed(0)
    download = {name: torch.rand_like(t) * 0.1 for name, t in extractor.state_dict().items()}
    return Task(run, "ada", round, base, Payload({**download, **tensors}))


class Remote:
    """A fleet of participants as a coordinator sees them, without the network in between."""

    places, manner = 2, "2 participants"

    def __init__(self, config: Config, place: Path) -> None:
        self.guests: dict[str, ParticipantHandler] = {}
        self.hosts: dict[str, ClientHost] = {}
        tree = config.model_dump(mode="json", exclude={"participants", "compare"})
        for name in config.federation.participants:
            person = ada(place / name).model_copy(update={"name": name})
            self.guests[name] = ParticipantHandler(person, config.federation, config.privacy)
            self.guests[name].seat.directory.mkdir(parents=True)
            simulation = Simulation(own_config(tree, person))
            self.hosts[name] = host_of(simulation, ClientStore(place / name / "clients"))

    def enroll(self) -> list[Card]:
        ctx = next(iter(self.hosts.values())).context(0)
        return [told_card(card, ctx) for host in self.hosts.values() for card in host.cards()]

    def round(self, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
        for asked in tasks:
            answer = self.hosts[asked.client].answer(asked)
            assert isinstance(answer, Reply), answer
            left = self.guests[asked.client]._without_own(answer.payload)
            yield replace(answer, payload=left)

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Scored | Failure]:
        return (self.hosts[asked.client].score(asked) for asked in tasks)

    def close(self) -> None:
        pass
