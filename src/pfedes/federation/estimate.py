"""Estimates the time, memory and disk space of a run from clients that are trained for it."""

import itertools
import resource
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pfedes.config import Config
from pfedes.core.client import Card
from pfedes.core.payload import State
from pfedes.core.protocol import Failure, Fleet, Reply, Task
from pfedes.errors import MethodError
from pfedes.files import existing, writing
from pfedes.fleet.client_host import ClientHost, host_of
from pfedes.fleet.serial import with_threads
from pfedes.methods.base import Received
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore

MANY_CLIENTS = 1000
MANY_SAMPLES = 2_000_000  # seen in training, over all rounds and epochs: half an hour or more
MOST_MEASURED = 5  # clients, one of each model


@dataclass(frozen=True)
class Cost:
    """The cost of one client and of the server, in times of this machine as busy as it was."""

    training: float  # seconds of a client in a round
    scoring: float  # seconds of a client
    aggregating: float  # seconds of the server in a round
    state: float  # bytes of a version of a client
    evaluations: int  # of all clients, in a round

    def seconds(self, config: Config, workers: int = 1) -> float:
        """Seconds of all rounds, with so many clients trained at the same time."""
        train, clients = config.train, config.clients
        asked = train.rounds * train.selected(clients) * (self.training + self.scoring)
        scored = (1 + self.evaluations * train.rounds) * clients * self.scoring
        return (asked + scored) / workers + train.rounds * self.aggregating

    def stored(self, config: Config) -> float:
        """The bytes of all clients: one version each, and of those asked lately some more."""
        train, clients = config.train, config.clients
        asked = train.selected(clients)
        trained = min(clients, asked * train.rounds)
        return (trained + asked * min(config.runtime.keep_rounds, train.rounds)) * self.state


@dataclass(frozen=True)
class Plan:
    """An estimate of a whole run."""

    clients: int
    workers: int  # clients that are trained at the same time
    manner: str  # how, in a few words
    seconds: float
    memory: int  # bytes, of all processes together
    disk: int  # bytes
    free: int  # bytes on that disk
    measured: tuple[str, ...]  # the clients that were trained for the estimate
    client_seconds: float


@dataclass(frozen=True)
class Trial:
    """A client that was trained aside."""

    reply: Reply
    training: float  # seconds
    scoring: float  # seconds
    state: int  # bytes of what it keeps


def epochs_seen(config: Config) -> int:
    """How many epochs a client trains its models in a round, one after another."""
    method = config.method
    return config.train.epochs + sum(int(getattr(method, key)) for key in method.local_epochs)


def is_big(config: Config, sizes: Sequence[int]) -> bool:
    """Whether a run has so many clients, or sees so many samples, that one wants to know before."""
    train = config.train
    asked = train.rounds * train.selected(len(sizes))
    seen = asked * sum(sizes) / len(sizes) * epochs_seen(config)
    return len(sizes) >= MANY_CLIENTS or seen >= MANY_SAMPLES


def plan_of(
    simulation: Simulation,
    fleet: Fleet,
    cards: Sequence[Card],
    state: State,
    tasks: Sequence[Task],
    out: Path,
) -> Plan:
    """Trains and scores a client of each model, aside, and multiplies."""
    config = simulation.config
    chosen = one_of_each_model(simulation)
    with aside(simulation) as host:
        trials = {name: tried(host, task) for task in tasks if (name := task.client) in chosen}
        aggregating = server_seconds(simulation, cards, state, trials)
        memory = _private_memory()
    counts = [chosen[name] for name in trials]
    cost = Cost(
        training=mean([trial.training for trial in trials.values()], counts),
        scoring=mean([trial.scoring for trial in trials.values()], counts),
        aggregating=aggregating,
        state=mean([trial.state for trial in trials.values()], counts),
        evaluations=evaluations_of(simulation),
    )
    return Plan(
        clients=len(tasks),
        workers=fleet.places,
        manner=fleet.manner,
        seconds=cost.seconds(config, fleet.places),
        memory=(fleet.places + 1) * memory,
        disk=int(cost.stored(config)),
        free=shutil.disk_usage(existing(out)).free,
        measured=tuple(trials),
        client_seconds=cost.training + cost.scoring,
    )


def one_of_each_model(simulation: Simulation) -> dict[str, int]:
    """Clients of the middle size among those of the same model, with how many they stand for."""
    population = simulation.population
    by_size = sorted(population.names, key=lambda name: population.sizes[name])
    common = Counter(population.architectures[name] for name in by_size).most_common(MOST_MEASURED)
    chosen = {}
    for model, count in common:
        alike = [name for name in by_size if population.architectures[name] == model]
        chosen[alike[count // 2]] = count
    return chosen


def tried(host: ClientHost, task: Task, run: str = "plan") -> Trial:
    """Trains a client in round 1 and takes the time."""
    task = replace(task, run=run, round=1)
    before = _size(host.store.root)
    began = time.perf_counter()
    host.score(task)
    scored = time.perf_counter()
    answer = host.answer(task)
    answered = time.perf_counter()
    if isinstance(answer, Failure):
        raise MethodError(f"{answer.client} cannot be trained: {answer.reason}")
    scoring = scored - began
    training = max(0.0, answered - scored - scoring)  # clients that have trained are scored
    return Trial(answer, training, scoring, _size(host.store.root) - before)


def server_seconds(
    simulation: Simulation, cards: Sequence[Card], state: State, trials: Mapping[str, Trial]
) -> float:
    """The server's seconds for aggregating, with uploads of the tried clients for all."""
    if simulation.config.privacy.secure_sum:
        return 0.0  # whole numbers are added up
    ctx = simulation.context(1)
    sent = [(card, trials[card.name].reply.payload) for card in cards if card.name in trials]
    uploads = [
        Received(replace(card, name=f"{card.name}-{number}"), payload)
        for number, (card, payload) in zip(
            range(ctx.train.selected(len(cards))), itertools.cycle(sent), strict=False
        )
    ]
    held = State({name: tensor.clone() for name, tensor in state.tensors.items()}, dict(state.meta))
    began = time.perf_counter()
    simulation.method.aggregate(held, uploads, ctx)
    return time.perf_counter() - began


def evaluations_of(simulation: Simulation) -> int:
    """How often all clients are scored in a round."""
    return int(simulation.method.evaluated_after_aggregation(simulation.context(1)))


def mean(values: Sequence[float], counts: Sequence[int]) -> float:
    """The mean of values that so many share."""
    return sum(value * count for value, count in zip(values, counts, strict=True)) / sum(counts)


@contextmanager
def aside(simulation: Simulation) -> Iterator[ClientHost]:
    """All clients, with their states in a temporary place."""
    with writing(Path(tempfile.gettempdir())):
        place = tempfile.TemporaryDirectory(prefix="pfedes-")
    with place as name, with_threads(simulation.config.runtime.threads):
        yield host_of(simulation, ClientStore(Path(name)))


def _size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def _private_memory() -> int:
    """Bytes that this process shares with no file: data and libraries are there only once."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts in bytes
    return (resident - shared) * resource.getpagesize()
