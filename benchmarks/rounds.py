"""How long a client's round takes, for every method, beside plain training.

    python benchmarks/rounds.py

All methods are timed in one process, interleaved, and shown as medians and as ratios to
Standalone: a busy machine slows all of them alike.
"""

import statistics
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from pfedes import configure
from pfedes.clientstore import ClientStore
from pfedes.fleet.base import Reply, Task
from pfedes.methods import METHODS
from pfedes.simulation import Simulation

REPETITIONS = 5
CLIENT = "client-0000"
SETTINGS = {"models.pool": ["cnn1"], "train.batch_size": 64, "train.epochs": 2}


def main() -> None:
    torch.set_num_threads(1)
    simulations = {name: Simulation(configure(method=name, settings=SETTINGS)) for name in METHODS}
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    flops: dict[str, int] = {}
    for repetition in range(REPETITIONS + 1):
        for name, simulation in simulations.items():
            spent, flops[name] = _round(simulation)
            if repetition:  # the first one warms up
                seconds[name].append(spent)

    table = Table("method", "seconds", "of standalone", "GFLOP", "GFLOP/s", box=None)
    alone = statistics.median(seconds["standalone"])
    for name, times in seconds.items():
        median, work = statistics.median(times), flops[name] / 1e9
        table.add_row(
            name, f"{median:.3f}", f"{median / alone:.2f}", f"{work:.1f}", f"{work / median:.1f}"
        )
    samples = len(simulations["pfedes"].population.shares[CLIENT].train)
    console = Console()
    console.print(f"one client, CNN-1, {samples} digits, batch 64, E = 2, E_fe = 5, one thread")
    console.print(table)


def _round(simulation: Simulation) -> tuple[float, int]:
    method, ctx = simulation.method, simulation.context(1)
    cards = simulation.population.cards(method.needs)
    download = method.download(method.start(cards, ctx), cards[0], ctx)
    with tempfile.TemporaryDirectory() as place:
        host = simulation.host(ClientStore(Path(place)))
        began = time.perf_counter()
        answer = host.answer(Task("bench", CLIENT, 1, 0, download))
        spent = time.perf_counter() - began
    assert isinstance(answer, Reply), answer
    flops = answer.payload.meta["flops"]
    assert isinstance(flops, int)
    return spent, flops


if __name__ == "__main__":
    main()
