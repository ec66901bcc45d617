"""How long a client's round takes, for every method, beside plain training."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from pfedes import configure
from pfedes.core.protocol import Reply, Task
from pfedes.fleet.client_host import host_of
from pfedes.methods import METHODS
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore

CLIENT = "client-0000"
SETTINGS = {"models.pool": ["cnn1"], "train.batch_size": 64, "train.epochs": 2}


def rounds_of_methods(repetitions: int = 5) -> list[dict[str, Any]]:
    """Seconds and FLOPs of a client's round, one row for each method."""
    torch.set_num_threads(1)
    simulations = {name: Simulation(configure(method=name, settings=SETTINGS)) for name in METHODS}
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    flops: dict[str, int] = {}
    for turn in range(repetitions + 1):
        for name, simulation in simulations.items():
            spent, flops[name] = timed_round(simulation)
            if turn:  # the first one warms up
                seconds[name].append(spent)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return [
        {
            "method": name,
            "seconds": median,
            "of standalone": median / medians["standalone"],
            "GFLOP": flops[name] / 1e9,
            "GFLOP/s": flops[name] / 1e9 / median,
        }
        for name, median in medians.items()
    ]


def timed_round(simulation: Simulation) -> tuple[float, int]:
    """Seconds and FLOPs of a client's first round, state and evaluation included."""
    method, ctx = simulation.method, simulation.context(1)
    cards = simulation.population.cards(method.needs)
    download = method.download(method.start(cards, ctx), cards[0], ctx)
    with tempfile.TemporaryDirectory() as place:
        host = host_of(simulation, ClientStore(Path(place)))
        began = time.perf_counter()
        answer = host.answer(Task("bench", CLIENT, 1, 0, download))
        spent = time.perf_counter() - began
    assert isinstance(answer, Reply), answer
    flops = answer.payload.meta["flops"]
    assert isinstance(flops, int)
    return spent, flops
