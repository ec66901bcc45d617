"""Shadow clients: clients that the run might have had, which receive what its server holds.

They have the configuration of the run under other seeds: other partitions, other architectures,
other initial weights. They answer for the first time, through the same code as the run's own
clients. An attacker who knows the configuration can make any number of them, and learns from those
whose secrets it knows what the uploads of others reveal.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from pfedes.audit.suited import population_of
from pfedes.config import Config
from pfedes.core.aggregation import Tensors
from pfedes.core.client import Card
from pfedes.core.payload import State, Value
from pfedes.core.protocol import SUMMAND, Failure, Reply, Task
from pfedes.core.seeding import Streams
from pfedes.data.dataset import Dataset
from pfedes.data.preprocess import Preprocess
from pfedes.errors import FailedRunError, StoreError
from pfedes.fleet.client_host import ClientHost, host_of
from pfedes.fleet.serial import with_threads
from pfedes.methods.base import Received
from pfedes.methods.pfedes import PFedES
from pfedes.population.partitioned import PartitionedPopulation
from pfedes.population.simulation import Simulation
from pfedes.privacy.encoding import moved_by
from pfedes.results.findings import Situation
from pfedes.results.run import Run
from pfedes.store.client_store import ClientStore, Version

Numbers = NDArray[np.float64]

LARGEST_COHORT = 10
"""The sum of few tells more than the sum of many: cohorts are no larger than this."""

MOST_OF_A_TENSOR = 512
"""Numbers of one tensor that an attacker looks at, spread evenly over it."""

RUN = "audit"  # the run id of all tasks


@dataclass(frozen=True)
class Shadow:
    """A client whose secrets are known, and what left it."""

    cohort: int
    name: str
    architecture: str
    samples: int
    weight: float  # its weight in a mean
    shares: Numbers  # of its training samples, by class
    sent: Numbers  # the numbers of the download that an attacker looks at
    change: Numbers  # by what the upload differs from these
    size: float  # the norm of the whole change
    whole: bool  # whether the attacker looks at all numbers
    meta: Mapping[str, Value]


@dataclass(frozen=True)
class Stranger:
    """A shadow client's model after its answer, and which classes it knows."""

    architecture: str
    model: nn.Module
    shares: Numbers


class Forgetful(ClientStore):
    """Keeps nothing but the last state: clients that are asked once need none on a disk."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))
        self.last: dict[str, Tensor] = {}

    def versions(self, run: str, client: str) -> list[int]:
        return []

    def commit(self, version: Version) -> None:
        """Lets the one before go."""
        self.last = version.state

    def keep_preprocess(self, run: str, client: str, preprocess: Preprocess) -> None:
        """Lets it go."""


class Shadows:
    """Makes cohorts of shadow clients; the same number gives the same cohort."""

    def __init__(self, run: Run) -> None:
        population = run.original.population
        if not population.is_here:
            raise StoreError(
                f"{run.directory} was a federation over a network: its clients are not here, and "
                "an audit needs them; audit a run of 'pfedes run' with the same settings"
            )
        self.base = run.original
        self.round = run.manifest.round + 1
        self.state: State = run.store.server_state(run.manifest)
        self.strangers: list[Stranger] = []
        """Models of the first cohort, which is not attacked."""
        self._streams = Streams(self.base.config.seed)

    @property
    def can_be_made(self) -> bool:
        """Whether other partitions exist: participants bring data of their own."""
        return isinstance(self.base.population, PartitionedPopulation)

    @property
    def why_no_extractor(self) -> str:
        """Why attacks on shadow clients' extractors cannot be tried; "" if they can."""
        if not self.can_be_made:
            return "participants bring data of their own: there are no other partitions of it"
        if not isinstance(self.base.method, PFedES):
            return "written for the extractor of pFedES"
        return "" if self.base.method.averages_parameters else "no extractor travels"

    @property
    def dataset(self) -> Dataset:
        """The data set that is partitioned."""
        return population_of(self.base).dataset

    @cached_property
    def cohort_size(self) -> int:
        """How many clients of a partition are asked."""
        asked = self.base.config.train.selected(len(self.base.population.names))
        return min(asked, LARGEST_COHORT)

    @property
    def situations(self) -> tuple[Situation, ...]:
        """In which numbers that travel are looked at. What the run does to them stays done."""
        privacy = self.base.config.privacy
        if privacy.secure_sum:
            return ("secure sum",)
        noisy: tuple[Situation, ...] = () if privacy.mode == "local" else ("local noise",)
        return ("as it is", *noisy, "secure sum")

    def simulation(self, number: int, base: Config | None = None) -> Simulation:
        """The run's configuration, or one made of it, under another seed, with the run's data."""
        seed = self._streams.number("audit.shadows", round=number)
        config = (base or self.base.config).model_copy(update={"seed": seed})
        return Simulation(config, data=self.dataset)

    def task(self, simulation: Simulation, name: str) -> Task:
        """The task of a client that gives its first answer now."""
        card = self.card(simulation, name)
        ctx = simulation.context(self.round)
        download = simulation.method.download(self.state, card, ctx)
        return Task(RUN, name, self.round, 0, download)

    def card(self, simulation: Simulation, name: str) -> Card:
        return simulation.population.card(name, simulation.method.needs)

    def cohort(self, number: int) -> list[Shadow]:
        """The clients of one seed that would be asked in a round."""
        simulation, store = self.simulation(number), Forgetful()
        host = host_of(simulation, store)
        rng = simulation.streams.numpy("selection", round=self.round)
        names = simulation.population.names
        chosen = sorted(rng.choice(len(names), self.cohort_size, replace=False))
        found = []
        if number == 0:
            self.strangers.clear()
        for index in chosen:
            found.append(shadow := self._shadow(host, simulation, number, names[index]))
            if number == 0:
                model = model_of(simulation, shadow.name, store.last)
                self.strangers.append(Stranger(shadow.architecture, model, shadow.shares))
        return found

    def _shadow(self, host: ClientHost, simulation: Simulation, number: int, name: str) -> Shadow:
        task = self.task(simulation, name)
        with with_threads(simulation.config.runtime.threads):
            answer = host.answer(task)
        if isinstance(answer, Failure):
            raise FailedRunError(f"a shadow client failed, as a client would: {answer.reason}")
        population, method = simulation.population, simulation.method
        if method.averages_parameters:
            change = change_in(simulation, task, answer)
            known = task.download.tensors
            sent = {key: known.get(key, tensor * 0) for key, tensor in change.items()}
        else:  # uploads of this method are no changes
            change = answer.payload.tensors
            sent = {key: tensor * 0 for key, tensor in change.items()}
        labels = population.labels(name)["train"]
        counts = np.bincount(labels, minlength=len(population.class_names))
        return Shadow(
            cohort=number,
            name=name,
            architecture=population.architectures[name],
            samples=len(labels),
            weight=1 if simulation.config.privacy.noisy else len(labels),
            shares=counts / counts.sum(),
            sent=_looked_at(sent),
            change=_looked_at(change),
            size=float(np.sqrt(sum(float(t.double().square().sum()) for t in change.values()))),
            whole=all(tensor.numel() <= MOST_OF_A_TENSOR for tensor in change.values()),
            meta=answer.payload.meta,
        )


def change_in(simulation: Simulation, task: Task, answer: Reply) -> Tensors:
    """The change that an answer asks for, of a method that averages parameters.

    What a secure sum hides is read from the whole numbers that the client adds to it.
    """
    tensors, sent = answer.payload.tensors, task.download
    if simulation.config.privacy.secure_sum:
        change = simulation.mechanism().mean_of(tensors[SUMMAND].numpy(), 1)
        return moved_by({name: tensor * 0 for name, tensor in sent.tensors.items()}, change)
    card = simulation.population.card(task.client, simulation.method.needs)
    received = Received(card, answer.payload)
    return simulation.method.change(received, sent, simulation.context(task.round))


def model_of(simulation: Simulation, name: str, state: dict[str, Tensor]) -> nn.Module:
    """A client's model in some state, as it is where it is measured."""
    client = simulation.population.client(name)
    client.load(state)
    return client.model.eval()


def extractor_of(shadows: Shadows, x: Tensor, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The extractor of such inputs with these numbers; of pFedES only."""
    method = shadows.base.method
    assert isinstance(method, PFedES)
    extractor = method.extractors.new(tuple(x.shape[1:])).to(x.device)
    extractor.load_state_dict(dict(tensors))
    return extractor.eval()


def _looked_at(tensors: Mapping[str, Tensor]) -> Numbers:
    """The numbers that an attacker looks at, tensor by tensor in the order of their names."""
    parts = [_spread(tensors[name]) for name in sorted(tensors)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _spread(tensor: Tensor) -> Numbers:
    numbers = np.asarray(tensor.detach().cpu().double().reshape(-1).numpy(), np.float64)
    if len(numbers) <= MOST_OF_A_TENSOR:
        return numbers
    places = np.linspace(0, len(numbers) - 1, MOST_OF_A_TENSOR).round().astype(np.int64)
    return numbers[places]


def split(shadows: Sequence[Shadow]) -> tuple[list[Shadow], list[Shadow]]:
    """Two thirds of the cohorts to learn from, and the others to be attacked."""
    learn = [shadow for shadow in shadows if shadow.cohort % 3 != 2]
    return learn, [shadow for shadow in shadows if shadow.cohort % 3 == 2]
