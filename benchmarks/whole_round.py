"""A whole pFedES round of ours beside the naive program's, on the same clients.

    python benchmarks/whole_round.py

CIFAR-10 (set PFEDES_DATA), N = 100, C = 10 %, batch 64, E = 5, E_fe = 5, with augmentation, two
workers. The naive program may use one thread or two; the quicker counts.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from naive import naive_round

from pfedes import Config, Federation, Listener, configure
from pfedes.population.simulation import Simulation
from pfedes.results.summary import Row

SETTINGS = {
    "train.batch_size": 64,
    "train.epochs": 5,
    "method.extractor_epochs": 5,
    "train.augment": True,
    "runtime.workers": 2,
}


def versus_naive(repetitions: int = 3) -> list[dict[str, Any]]:
    """Seconds of a round: ours, and the naive program's with one thread and with two."""
    config = configure(
        data="cifar10",
        clients=100,
        participation=0.1,
        rounds=repetitions + 1,  # the first one starts the workers
        settings=SETTINGS,
    )
    beside = Beside(config)
    with tempfile.TemporaryDirectory() as place:
        Federation(config, out=Path(place) / "run", listener=beside).run()
    seconds = {name: statistics.median(times) for name, times in beside.seconds.items()}
    best = min(seconds["naive, 1 thread"], seconds["naive, 2 threads"])
    return [
        {"program": name, "seconds": spent, "times faster": best / spent}
        for name, spent in seconds.items()
    ]


class Beside(Listener):
    """Does every round again in the naive way, while our workers wait."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.simulation = Simulation(config)
        self.names: Sequence[str] = []
        self.seconds: dict[str, list[float]] = {
            "ours, 2 workers": [],
            "naive, 1 thread": [],
            "naive, 2 threads": [],
        }

    def round_started(self, round: int, clients: Sequence[str]) -> None:
        self.names = clients

    def round_done(self, row: Row) -> None:
        if row["round"] == 1:
            return
        self.seconds["ours, 2 workers"].append(row["seconds"])
        self.seconds["naive, 1 thread"].append(self._naive(1))
        self.seconds["naive, 2 threads"].append(self._naive(2))

    def _naive(self, threads: int) -> float:
        clients = [self.simulation.population.client(name) for name in self.names]
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        random.seed(0)
        began = time.perf_counter()
        naive_round(clients, self.config.train, 5, 0.1)
        spent = time.perf_counter() - began
        torch.set_num_threads(before)
        return spent
