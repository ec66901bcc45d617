"""What a big run will take, estimated from one client that is really trained."""

import resource
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pfedes.config import Config
from pfedes.core.protocol import Failure, Fleet, Task
from pfedes.errors import MethodError
from pfedes.files import existing, writing
from pfedes.fleet.client_host import host_of
from pfedes.fleet.serial import with_threads
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore

MANY_CLIENTS = 1000
MANY_SAMPLES = 2_000_000  # seen in training, over all rounds and epochs: half an hour or more


@dataclass(frozen=True)
class Plan:
    """An estimate; times are those of this machine as busy as it was."""

    clients: int
    workers: int  # clients that are trained at the same time
    manner: str  # how, in a few words
    seconds: float
    memory: int  # bytes, of all processes together
    disk: int  # bytes
    free: int  # bytes on that disk
    measured: str  # the client that was trained for the estimate
    client_seconds: float


def is_big(config: Config, sizes: Sequence[int]) -> bool:
    """Whether a run has so many clients, or sees so many samples, that one wants to know before."""
    train = config.train
    seen = train.rounds * train.selected(len(sizes)) * sum(sizes) / len(sizes) * train.epochs
    return len(sizes) >= MANY_CLIENTS or seen >= MANY_SAMPLES


def plan_of(simulation: Simulation, fleet: Fleet, tasks: Sequence[Task], out: Path) -> Plan:
    """Trains and scores a client of the middle size, aside, and multiplies."""
    config = simulation.config
    sizes = simulation.population.sizes
    middle = sorted(tasks, key=lambda task: sizes[task.client])[len(tasks) // 2]
    task = replace(middle, run="plan", round=1)
    with _aside() as place, with_threads(config.runtime.threads):
        host = host_of(simulation, ClientStore(place))
        began = time.perf_counter()
        host.score(task)
        scored = time.perf_counter()
        answer = host.answer(task)
        answered = time.perf_counter()
        if isinstance(answer, Failure):
            raise MethodError(f"{answer.client} cannot be trained: {answer.reason}")
        state = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        memory = _private_memory()
    clients = len(tasks)
    asked = config.train.selected(clients)
    trained = min(clients, asked * config.train.rounds)
    workers = fleet.places
    # A trained client keeps one version, those asked lately one for every round that is kept.
    files = trained + asked * (config.runtime.keep_rounds + 1)
    evaluations = 1
    if simulation.method.evaluated_after_aggregation(simulation.context(1)):
        evaluations += config.train.rounds
    training = config.train.rounds * asked * (answered - scored)
    return Plan(
        clients=clients,
        workers=workers,
        manner=fleet.manner,
        seconds=(training + evaluations * clients * (scored - began)) / workers,
        memory=(workers + 1) * memory,
        disk=files * state,
        free=shutil.disk_usage(existing(out)).free,
        measured=task.client,
        client_seconds=answered - scored,
    )


@contextmanager
def _aside() -> Iterator[Path]:
    with writing(Path(tempfile.gettempdir())):
        place = tempfile.TemporaryDirectory(prefix="pfedes-")
    with place as name:
        yield Path(name)


def _private_memory() -> int:
    """Bytes that this process shares with no file: data and libraries are there only once."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts in bytes
    return (resident - shared) * resource.getpagesize()
