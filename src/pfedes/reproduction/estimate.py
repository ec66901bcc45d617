"""How long runs will take and how much they will store, before any of them starts."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional as F
from torch.optim import SGD

from pfedes.config import Config
from pfedes.data import sources
from pfedes.data.sources import DataConfig
from pfedes.fleet.serial import with_threads
from pfedes.methods import _low_rank as low_rank
from pfedes.methods._shared_model import architecture
from pfedes.methods.fedkd import FedKDConfig
from pfedes.methods.pfedes import PFedESConfig
from pfedes.models import build_model, channels_last
from pfedes.reproduction.experiments.models import parameters
from pfedes.reproduction.scale import PHASE_1, PHASE_2
from pfedes.sweep.cells import Cell

START_UP = 3.0  # seconds until a run trains
STEPS = 4  # that are timed


@dataclass(frozen=True)
class Estimate:
    """Times are those of this machine as busy as it is now."""

    cells: int
    seconds: float
    largest_state: int  # bytes, of the runs at work at a time
    all_states: int  # bytes, if all are kept


def estimate(cells: Sequence[Cell], jobs: int = 0) -> Estimate:
    """From a few timed steps of each architecture, and what methods compute beyond them."""
    jobs = min(jobs or os.cpu_count() or 1, max(1, len(cells)))
    states = sorted((state_bytes(cell.config) for cell in cells), reverse=True)
    return Estimate(
        cells=len(cells),
        seconds=sum(START_UP + cell.rounds * round_seconds(cell.config) for cell in cells) / jobs,
        largest_state=sum(states[:jobs]),
        all_states=sum(states),
    )


def round_seconds(config: Config) -> float:
    """What a round takes, for the most part."""
    pool = config.models.pool
    dataset = _facts(config.data.model_copy(update={"limit": 0}))
    images = config.data.limit or dataset.images
    asked = config.train.selected(config.partition.clients)
    samples = 0.8 * images / config.partition.clients * asked * config.train.epochs
    step = sum(
        _sample_seconds(name, config.train.batch_size, dataset.classes, dataset.shape)
        for name in pool
    ) / len(pool)
    seconds = samples * step * _work(config)
    if isinstance(config.method, FedKDConfig) and config.method.compression:
        shared = architecture(config.method.shared_model, pool)
        # Every client that is asked decomposes its update, and the server their mean.
        seconds += (asked + 1) * _decomposing_seconds(shared, dataset.classes, dataset.shape)
    return seconds


def state_bytes(config: Config) -> int:
    """What a run's clients store: one version each, and those asked lately some more."""
    dataset = _facts(config.data.model_copy(update={"limit": 0}))
    pool = config.models.pool
    sizes = [4 * parameters(build_model(n, dataset.classes, dataset.shape)) for n in pool]
    clients = config.partition.clients
    asked = config.train.selected(clients)
    trained = min(clients, asked * config.train.rounds)
    versions = trained + asked * min(config.runtime.keep_rounds, config.train.rounds)
    second = {"fml": 2.0, "fedkd": 2.0}.get(config.method.name, 1.0)  # the shared model
    return int(second * versions * sum(sizes) / len(sizes))


def _work(config: Config) -> float:
    """What a method computes in an epoch, as a multiple of Standalone."""
    method, epochs = config.method, config.train.epochs
    if isinstance(method, PFedESConfig):
        phase1 = PHASE_1 if method.phase1 == "both" else PHASE_1 / 2
        if method.sharing == "frozen":
            return phase1
        return phase1 + PHASE_2 * method.extractor_epochs * method.extractor_share / epochs
    return {"fml": 1.9, "fedkd": 2.0, "fedproto": 1 + 0.37 / epochs}.get(method.name, 1.0)


@dataclass(frozen=True)
class _Facts:
    images: int
    classes: int
    shape: tuple[int, int, int]


@cache
def _facts(config: DataConfig) -> _Facts:
    dataset = sources.load(config)
    return _Facts(len(dataset), len(dataset.class_names), dataset.shape)


@cache
def _decomposing_seconds(name: str, classes: int, shape: tuple[int, int, int]) -> float:
    update = build_model(name, classes, shape).state_dict()
    times = []
    with with_threads(1):
        for _ in range(2):
            began = time.perf_counter()
            low_rank.compress(update, 0.95)
            times.append(time.perf_counter() - began)
    return min(times)


@cache
def _sample_seconds(name: str, batch: int, classes: int, shape: tuple[int, int, int]) -> float:
    model = channels_last(build_model(name, classes, shape))
    optimiser = SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3, fused=True)
    x = torch.randn(batch, *shape).to(memory_format=torch.channels_last)
    y = torch.zeros(batch, dtype=torch.int64)
    times = []
    with with_threads(1):
        for _ in range(STEPS):
            began = time.perf_counter()
            optimiser.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimiser.step()
            times.append(time.perf_counter() - began)
    return min(times) / batch
