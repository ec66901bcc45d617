"""What one pass instead of two brings in phase 1 of pFedES."""

import statistics
from typing import Any

import torch
from methods import timed_round

from pfedes import Config, configure
from pfedes.population.simulation import Simulation

SETTINGS = {"models.pool": ["cnn1"], "train.batch_size": 64, "train.epochs": 5}


def passes(repetitions: int = 5) -> list[dict[str, Any]]:
    """Seconds and FLOPs of a client's round with E = 5 and E_fe = 1, beside Standalone's."""
    torch.set_num_threads(1)
    works = {
        "standalone": _config("standalone"),
        "both": _config("pfedes", phase1="both"),
        "drawn": _config("pfedes", phase1="drawn"),
        "drawn, half the samples in phase 2": _config(
            "pfedes", phase1="drawn", extractor_share=0.5
        ),
    }
    simulations = {name: Simulation(config) for name, config in works.items()}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    flops: dict[str, int] = {}
    for turn in range(repetitions + 1):
        for name, simulation in simulations.items():
            spent, flops[name] = timed_round(simulation)
            if turn:  # the first one warms up
                seconds[name].append(spent)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return [
        {
            "phase 1": name,
            "seconds": medians[name],
            "of standalone": medians[name] / medians["standalone"],
            "FLOPs, of standalone": flops[name] / flops["standalone"],
        }
        for name in works
    ]


def _config(method: str, **keys: object) -> Config:
    own = {"extractor_epochs": 1, **keys} if method == "pfedes" else {}
    chosen = {f"method.{key}": value for key, value in own.items()}
    return configure(method=method, settings={**SETTINGS, **chosen})
