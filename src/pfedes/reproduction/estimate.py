"""How long runs will take and how much they will store, before any of them starts.

Clients of each kind of run are trained aside for some batches: what is alike in many runs is
measured once, and time grows with the samples that a client sees.
"""

import json
import logging
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from pfedes.config import Config
from pfedes.core.protocol import Task
from pfedes.data import sources
from pfedes.data.dataset import Dataset, Progress, silent
from pfedes.data.sources import DataConfig
from pfedes.federation.estimate import (
    Cost,
    Trial,
    aside,
    epochs_seen,
    evaluations_of,
    mean,
    one_of_each_model,
    server_seconds,
    tried,
)
from pfedes.population.partitioned import PartitionedPopulation
from pfedes.population.simulation import Simulation
from pfedes.sweep.cells import Cell

START_UP = 3.0  # seconds until a run trains
FEW, MORE = 1, 3  # batches that a client is tried with
MOST_UNITS = 2  # of many epochs, so few are tried; with the same share of each phase


@dataclass(frozen=True)
class Estimate:
    """Times are those of this machine as busy as it is now."""

    cells: int
    seconds: float
    largest_state: int  # bytes, of the runs at work at a time
    all_states: int  # bytes, if all are kept


class Estimator:
    """Measures each kind of run once."""

    def __init__(self) -> None:
        self._known: dict[str, _Kind] = {}

    def measure(self, cells: Sequence[Cell], progress: Progress = silent) -> None:
        """Measures all kinds that there are, so that the rest is arithmetic."""
        kinds = {_kind_name(cell.config): cell.config for cell in cells}
        missing = {name: config for name, config in kinds.items() if name not in self._known}
        for done, (name, config) in enumerate(missing.items()):
            progress("measuring what the runs take", done, len(missing))
            with _unheard():
                self._known[name] = _measured(config)
        progress("measuring what the runs take", len(missing), len(missing))

    def seconds(self, cell: Cell) -> float:
        return START_UP + self._cost(cell).seconds(cell.config)

    def whole(self, cells: Sequence[Cell], jobs: int = 0) -> Estimate:
        """All runs together, `jobs` at a time."""
        jobs = min(jobs or os.cpu_count() or 1, max(1, len(cells)))
        states = sorted((int(self._cost(c).stored(c.config)) for c in cells), reverse=True)
        return Estimate(
            cells=len(cells),
            seconds=sum(map(self.seconds, cells)) / jobs,
            largest_state=sum(states[:jobs]),
            all_states=sum(states),
        )

    def _cost(self, cell: Cell) -> Cost:
        self.measure([cell])
        return self._known[_kind_name(cell.config)].cost(cell.config)


def samples_seen(config: Config) -> float:
    """How many samples all clients see in a round, an estimate that takes no time."""
    asked = config.train.selected(config.clients)
    return asked / config.clients * _samples(config) * epochs_seen(config)


@dataclass(frozen=True)
class _Line:
    """Seconds that grow with the number of samples."""

    fixed: float
    for_a_sample: float

    @staticmethod
    def through(first: tuple[int, float], second: tuple[int, float]) -> "_Line":
        (few, less), (many, longer) = first, second
        if few == many:
            return _Line(0.0, longer / many)
        slope = max(0.0, (longer - less) / (many - few))
        return _Line(max(0.0, longer - slope * many), slope)

    def at(self, samples: float) -> float:
        return self.fixed + self.for_a_sample * samples


@dataclass(frozen=True)
class _Kind:
    """What runs have in common whose clients do the same work on a sample."""

    training: _Line
    scoring: _Line
    share: float  # of a client's samples, for training
    aggregating: float
    state: float
    evaluations: int

    def cost(self, config: Config) -> Cost:
        samples = self.share * _samples(config) / config.clients
        return Cost(
            training=self.training.at(samples * _units(config) / _units_tried(config)),
            scoring=self.scoring.at(samples),
            aggregating=self.aggregating,
            state=self.state,
            evaluations=self.evaluations,
        )


@contextmanager
def _unheard() -> Iterator[None]:
    """The runs themselves will warn of their partitions."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _measured(config: Config) -> _Kind:
    simulation = Simulation(_with_units(config, _units_tried(config)), data=_dataset(config.data))
    population, method = simulation.population, simulation.method
    assert isinstance(population, PartitionedPopulation)
    share = sum(population.sizes.values()) / population.samples
    chosen = one_of_each_model(simulation)
    few, more = {}, {}
    with aside(simulation) as host:
        cards = host.cards()
        ctx = simulation.context(0)
        state = method.start(cards, ctx)
        by_name = {card.name: card for card in cards}
        for name in chosen:
            download = method.download(state, by_name[name], ctx)
            task = Task("", name, 0, 0, download)
            full = population.shares[name]
            sizes = [batches * config.train.batch_size for batches in (FEW, MORE)]
            # The first time takes longer: memory is asked for, operations are counted.
            population.shorten(name, sizes[0])
            tried(host, task, "first")
            few[name] = population.sizes[name], tried(host, task, "few")
            population.shares[name] = full
            population.shorten(name, sizes[1])
            more[name] = population.sizes[name], tried(host, task, "more")
        trials = {name: trial for name, (_, trial) in more.items()}
        aggregating = server_seconds(simulation, cards, state, trials)
    counts = list(chosen.values())
    return _Kind(
        training=_line([_training(few[n], more[n]) for n in chosen], counts),
        scoring=_line([_scoring(few[n], more[n]) for n in chosen], counts),
        share=share,
        aggregating=aggregating,
        state=mean([trials[name].state for name in chosen], counts),
        evaluations=evaluations_of(simulation),
    )


Sized = tuple[int, Trial]


def _training(few: Sized, more: Sized) -> _Line:
    return _Line.through((few[0], few[1].training), (more[0], more[1].training))


def _scoring(few: Sized, more: Sized) -> _Line:
    return _Line.through((few[0], few[1].scoring), (more[0], more[1].scoring))


def _line(lines: Sequence[_Line], counts: Sequence[int]) -> _Line:
    return _Line(
        mean([line.fixed for line in lines], counts),
        mean([line.for_a_sample for line in lines], counts),
    )


def _units(config: Config) -> int:
    """The largest number that divides the epochs of all phases of a round."""
    own = (int(getattr(config.method, key)) for key in config.method.local_epochs)
    return math.gcd(config.train.epochs, *own)


def _units_tried(config: Config) -> int:
    return min(MOST_UNITS, _units(config))


def _with_units(config: Config, units: int) -> Config:
    """The same work in fewer epochs."""
    divisor = _units(config)
    own = {
        key: int(getattr(config.method, key)) // divisor * units
        for key in config.method.local_epochs
    }
    epochs = config.train.epochs // divisor * units
    return config.model_copy(
        update={
            "train": config.train.model_copy(update={"epochs": epochs}),
            "method": config.method.model_copy(update=own),
        }
    )


def _kind_name(config: Config) -> str:
    """The same for runs of one kind."""
    alike = _with_units(config, _units_tried(config))
    train = {"rounds", "participation", "min_uploads", "patience"}
    tree = alike.model_dump(
        mode="json",
        include={"data", "partition", "models", "method", "train", "evaluate"},
        exclude={"train": train, "data": {"limit"}, "partition": {"clients", "classes_per_client"}},
    )
    return json.dumps(tree, sort_keys=True)


def _samples(config: Config) -> int:
    return config.data.limit or len(_dataset(config.data.model_copy(update={"limit": 0})))


@cache
def _dataset(config: DataConfig) -> Dataset:
    return sources.load(config)
