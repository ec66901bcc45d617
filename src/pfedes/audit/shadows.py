"""Shadow clients: the clients that a run might have had, sent what its server holds.

An attacker who knows the configuration can make as many of them as it likes, and learn from those
whose secrets it knows what the uploads of others tell. They are clients of the same configuration
under other seeds: other partitions, other architectures, other initial weights. They answer for
the first time, through the same code as the run's own clients.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pfedes.core.client import Card
from pfedes.core.payload import State, Value
from pfedes.core.protocol import Failure, Task
from pfedes.core.seeding import Streams
from pfedes.data.preprocess import Preprocess
from pfedes.errors import FailedRunError, StoreError
from pfedes.fleet.client_host import ClientHost, host_of
from pfedes.fleet.serial import with_threads
from pfedes.methods.base import Received
from pfedes.population.partitioned import PartitionedPopulation
from pfedes.population.simulation import Simulation
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
    shares: Numbers  # of its training samples, by class
    sent: Numbers  # the numbers of the download that an attacker looks at
    change: Numbers  # by what the upload differs from these
    size: float  # the norm of the whole change
    whole: bool  # whether the attacker looks at all numbers
    meta: Mapping[str, Value]


class Forgetful(ClientStore):
    """Keeps nothing: clients that are asked once need no state on a disk."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))

    def versions(self, run: str, client: str) -> list[int]:
        return []

    def commit(self, version: Version) -> None:
        """Lets it go."""

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
        self._streams = Streams(self.base.config.seed)

    @property
    def can_be_made(self) -> bool:
        """Whether other partitions exist: participants bring data of their own."""
        return isinstance(self.base.population, PartitionedPopulation)

    @cached_property
    def cohort_size(self) -> int:
        """How many clients of a partition are asked."""
        asked = self.base.config.train.selected(len(self.base.population.names))
        return min(asked, LARGEST_COHORT)

    def simulation(self, number: int) -> Simulation:
        """The run's configuration under another seed, with the run's data."""
        population = self.base.population
        assert isinstance(population, PartitionedPopulation)
        seed = self._streams.number("audit.shadows", round=number)
        config = self.base.config.model_copy(update={"seed": seed})
        return Simulation(config, data=population.dataset)

    def task(self, simulation: Simulation, name: str) -> Task:
        """What a client is asked that answers for the first time now."""
        card = self.card(simulation, name)
        ctx = simulation.context(self.round)
        download = simulation.method.download(self.state, card, ctx)
        return Task(RUN, name, self.round, 0, download)

    def card(self, simulation: Simulation, name: str) -> Card:
        return simulation.population.card(name, simulation.method.needs)

    def cohort(self, number: int) -> list[Shadow]:
        """The clients of one seed that would be asked in a round."""
        simulation = self.simulation(number)
        host = host_of(simulation, Forgetful())
        rng = simulation.streams.numpy("selection", round=self.round)
        names = simulation.population.names
        chosen = sorted(rng.choice(len(names), self.cohort_size, replace=False))
        return [self._shadow(host, simulation, number, names[index]) for index in chosen]

    def _shadow(self, host: ClientHost, simulation: Simulation, number: int, name: str) -> Shadow:
        task = self.task(simulation, name)
        with with_threads(simulation.config.runtime.threads):
            answer = host.answer(task)
        if isinstance(answer, Failure):
            raise FailedRunError(f"a shadow client failed, as a client would: {answer.reason}")
        population, card = simulation.population, self.card(simulation, name)
        ctx, method = simulation.context(self.round), simulation.method
        received = Received(card, answer.payload)
        tensors = answer.payload.tensors
        if method.averages_parameters:
            change = method.change(received, task.download, ctx)
            sent = {key: tensors[key].double() - change[key].double() for key in change}
        else:  # what travels is no change of anything
            change, sent = tensors, {key: tensor * 0 for key, tensor in tensors.items()}
        labels = population.labels(name)["train"]
        counts = np.bincount(labels, minlength=len(population.class_names))
        return Shadow(
            cohort=number,
            name=name,
            architecture=population.architectures[name],
            samples=len(labels),
            shares=counts / counts.sum(),
            sent=_looked_at(sent),
            change=_looked_at(change),
            size=float(np.sqrt(sum(float(t.double().square().sum()) for t in change.values()))),
            whole=all(tensor.numel() <= MOST_OF_A_TENSOR for tensor in change.values()),
            meta=answer.payload.meta,
        )


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
