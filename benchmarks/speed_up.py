"""What a second worker brings, beside what a second process of plain matrix multiplications does.

Two cores share caches, memory and heat: two processes are rarely twice as fast as one. What the
multiplications reach is what can be had; the rest is ours to explain.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pfedes import configure
from pfedes.core.protocol import Reply, Task
from pfedes.fleet.client_host import host_of
from pfedes.fleet.workers import WorkerFleet
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore

REPETITIONS = 5
SETTINGS = {"train.epochs": 1, "method.extractor_epochs": 2, "data.limit": 6000}


def speed_up(repetitions: int = REPETITIONS) -> list[dict[str, Any]]:
    """Seconds with one process and with two, interleaved, and how many times faster two are."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place, Multiplications() as multiplications:
        rounds = Rounds(Path(place))
        works: dict[str, Callable[[], object]] = {
            "multiplications, 1": lambda: multiplications.run(1),
            "multiplications, 2": lambda: multiplications.run(2),
            "training, 1": lambda: rounds.run(1),
            "training, 2": lambda: rounds.run(2),
        }
        for turn in range(repetitions + 1):
            for name, work in works.items():
                began = time.perf_counter()
                work()
                if turn:  # the first one starts processes and warms them up
                    seconds.setdefault(name, []).append(time.perf_counter() - began)
        rounds.close()
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    reached = {
        work: medians[f"{work}, 1"] / medians[f"{work}, 2"]
        for work in ("multiplications", "training")
    }
    return [
        {
            "work": work,
            "one process, s": medians[f"{work}, 1"],
            "two processes, s": medians[f"{work}, 2"],
            "speed-up": value,
            "of what can be had": value / reached["multiplications"],
        }
        for work, value in reached.items()
    ]


class Rounds:
    """The same round of pFedES, done by fleets of one worker and of two."""

    def __init__(self, place: Path) -> None:
        config = configure(data="synthetic", clients=20, settings=SETTINGS)
        self.simulation = Simulation(config)
        host = host_of(self.simulation, ClientStore(place / "state" / "clients"))
        (place / "state").mkdir()
        self.fleets = {n: WorkerFleet(host, config.to_toml(), n) for n in (1, 2)}
        method, ctx = self.simulation.method, self.simulation.context(1)
        cards = self.simulation.population.cards(method.needs)
        state = method.start(cards, ctx)
        self.downloads = {card.name: method.download(state, card, ctx) for card in cards}
        self.number = 0

    def run(self, workers: int) -> None:
        self.number += 1  # another run each time: nothing is answered from the store
        run = f"run-{self.number}"
        tasks = [Task(run, name, 1, 0, download) for name, download in self.downloads.items()]
        for answer in self.fleets[workers].round(tasks):
            assert isinstance(answer, Reply), answer

    def close(self) -> None:
        for fleet in self.fleets.values():
            fleet.close()


MULTIPLY = """
import sys, torch
torch.set_num_threads(1)
a, b, product = (torch.randn(1024, 1024) for _ in range(3))
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        torch.mm(a, b, out=product)
    print("done", flush=True)
"""


class Multiplications:
    """Two processes that multiply matrices when told how often."""

    WORK = 120

    def __enter__(self) -> "Multiplications":
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", MULTIPLY],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for process in self.processes:
            assert process.stdout is not None
            process.stdout.readline()
        return self

    def run(self, count: int) -> None:
        """The same work by one process, or half of it by each of two."""
        for process in self.processes[:count]:
            assert process.stdin is not None
            print(self.WORK // count, file=process.stdin, flush=True)
        for process in self.processes[:count]:
            assert process.stdout is not None
            process.stdout.readline()

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.communicate()  # closes its input, at which it ends
