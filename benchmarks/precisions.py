"""What bf16 brings: a step of every CNN and phase, and a client's whole round."""

import statistics
from typing import Any

import torch
from kernels import PHASES, medians, steps_of
from methods import timed_round

from pfedes import configure
from pfedes.core.precision import Precision
from pfedes.fleet.process import keep_freed_memory
from pfedes.models import MODELS
from pfedes.population.simulation import Simulation

BATCH = 64
REPETITIONS = 11
KINDS: tuple[Precision, ...] = ("float32", "bf16")


def precisions(repetitions: int = REPETITIONS, rounds: int = 3) -> list[dict[str, Any]]:
    """Milliseconds in float32 and in bf16, in turns, and how many times faster bf16 is."""
    torch.set_num_threads(1)
    keep_freed_memory()
    rows = []
    for model in MODELS:
        steps = {
            f"{phase}, {kind}": step
            for kind in KINDS
            for phase, step in steps_of(model, BATCH, kind).items()
        }
        seconds = medians(steps, repetitions)
        rows += [
            _row(f"{model}, {phase}", *(seconds[f"{phase}, {kind}"] for kind in KINDS))
            for phase in PHASES
        ]
    return rows + [_row(f"a client's round, {name}", *_rounds(name, rounds)) for name in METHODS]


METHODS = ("standalone", "pfedes")
SETTINGS = {"train.batch_size": 64, "train.epochs": 5, "models.pool": ["cnn1"]}


def _rounds(method: str, repetitions: int) -> list[float]:
    """Of a client of CIFAR-10 with N = 100 and CNN-1; state and evaluation, float32, included."""
    simulations = [
        Simulation(configure(method=method, data="cifar10", clients=100, precision=kind,
                             settings=SETTINGS))
        for kind in KINDS
    ]  # fmt: skip
    seconds: list[list[float]] = [[] for _ in KINDS]
    for turn in range(repetitions + 1):
        for spent, simulation in zip(seconds, simulations, strict=True):
            took, _ = timed_round(simulation)
            if turn:  # the first one warms up
                spent.append(took)
    return [statistics.median(spent) for spent in seconds]


def _row(work: str, float32: float, bf16: float) -> dict[str, Any]:
    return {
        "work": work,
        "float32, ms": 1e3 * float32,
        "bf16, ms": 1e3 * bf16,
        "times faster": float32 / bf16,
    }
