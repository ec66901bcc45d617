"""Runs of the library with everything that travelled, beside the oracles' starting points."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import reference
from pfedes import Federation, Run
from pfedes.core.protocol import Failure, Reply, Task
from pfedes.fleet.serial import SerialFleet
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import Version
from reference import Order, Weights
from running import partitioned, small

# Sums are taken in another order (one pass over raw and enhanced images, fused SGD, another memory
# layout), so the last bits differ; a wrong term or a missing step is orders of magnitude larger.
TOLERANCE: Mapping[str, Any] = {"rtol": 1e-3, "atol": 3e-4}
SHARE = 0.005  # of the way that training moved the weights, by which the two may differ


def assert_same_way(found: Any, expected: Weights, start: Weights) -> None:
    """The library ends where the oracle ends, seen from where both began."""
    torch.testing.assert_close(dict(found), expected, **TOLERANCE, check_stride=False)
    moved = sum(float((expected[k] - start[k]).detach().double().norm()) ** 2 for k in start) ** 0.5
    apart = sum(float((expected[k] - found[k]).detach().double().norm()) ** 2 for k in start) ** 0.5
    assert moved > 0, "nothing moved: the comparison is idle"
    assert apart < SHARE * moved


def orders_of(
    simulation: Simulation, name: str, phase: str, round: int, epochs: int
) -> list[Order]:
    """The batches of a phase: the only randomness, drawn as the library promises to draw it."""
    count = len(partitioned(simulation.population).shares[name].train)
    size = simulation.config.train.batch_size
    stream = simulation.streams.torch(f"batches.{phase}", round=round, client=name)
    return [
        [rows.tolist() for rows in torch.randperm(count, generator=stream).split(size)]
        for _ in range(epochs)
    ]


def setup(simulation: Simulation) -> tuple[dict[str, reference.ReferenceClient], reference.Hyper]:
    clients = {}
    for name in simulation.population.names:
        client = simulation.population.client(name)
        everything = client.train.batch(slice(None))
        clients[name] = reference.ReferenceClient(
            reference.weights_of(client.model), everything.x.contiguous(), everything.y
        )
    train, method = simulation.config.train, simulation.config.method
    hyper = reference.Hyper(
        mu=getattr(method, "mu", 0.0),
        lr=train.lr,
        extractor_lr=getattr(method, "extractor_lr", 0.0),
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        clip=train.clip,
    )
    return clients, hyper


SETTINGS: Mapping[str, Any] = {
    "data__limit": 120,  # two batches an epoch: the order matters, and the last one is smaller
    "models__pool": ["cnn3", "cnn5"],
    "models__assign": "round_robin",
    "train__epochs": 2,
    "train__clip": 1.0,  # low enough to be at work
}


PARTIAL: Mapping[str, Any] = {
    **SETTINGS,
    "train__participation": 0.5,
    "train__rounds": 3,
    "runtime__keep_rounds": 4,
    "partition__classes_per_client": 4,
}


class Recording:
    """A run of the library with everything that travelled, and the oracle's starting point."""

    def __init__(self, method: str, out: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any):
        self.travelled: dict[tuple[int, str], tuple[Task, Reply]] = {}
        honest = SerialFleet.round

        def round(fleet: SerialFleet, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
            for task, answer in zip(tasks, honest(fleet, tasks), strict=True):
                assert isinstance(answer, Reply), answer
                self.travelled[task.round, task.client] = task, answer
                yield answer

        monkeypatch.setattr(SerialFleet, "round", round)
        self.config = small(method, **PARTIAL, **settings)
        self.run: Run = Federation(self.config, out=out).run()
        self.simulation = Simulation(self.config)
        self.clients, self.hyper = setup(self.simulation)
        self.starts = {name: dict(client.weights) for name, client in self.clients.items()}
        cards = self.simulation.population.cards(self.simulation.method.needs)
        self.start = self.simulation.method.start(cards, self.simulation.context(0))
        missed = [name for name in self.clients if len(self.rounds_of(name)) < 3]
        assert missed, "somebody has to miss a round"

    def rounds_of(self, name: str) -> list[int]:
        return [round for round, client in self.travelled if client == name]

    def selected(self, round: int) -> list[str]:
        return [client for number, client in self.travelled if number == round]

    def down(self, round: int, name: str) -> Any:
        return self.travelled[round, name][0].download

    def up(self, round: int, name: str) -> Any:
        return self.travelled[round, name][1].payload

    def orders(self, round: int, name: str) -> list[Order]:
        return orders_of(self.simulation, name, "model", round, 2)

    def version(self, name: str) -> Version:
        return self.run.store.clients.load(
            self.run.manifest.run, name, self.run.manifest.clients[name].version
        )

    def assert_models_agree(self) -> None:
        for name, client in self.clients.items():
            if self.rounds_of(name):
                found = self.run.model(name).state_dict()
                assert_same_way(found, client.weights, self.starts[name])


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, **TOLERANCE, check_stride=False)


def rows_by_label(payload: Any, name: str) -> dict[int, torch.Tensor]:
    return dict(zip(payload.meta["labels"], payload.tensors[name], strict=True))
