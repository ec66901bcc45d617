"""The library gives the parameters that the naive Algorithm 1 gives."""

from pathlib import Path

import torch

import reference
from pfedes import Federation
from pfedes.simulation import Simulation
from running import small

# Sums are taken in another order (one pass over raw and enhanced images, fused SGD, another memory
# layout), so the last bits differ; a wrong term or a missing step is orders of magnitude larger.
TOLERANCE = {"rtol": 1e-3, "atol": 3e-5}


def _orders(simulation: Simulation, name: str, phase: str, round: int, epochs: int) -> list:
    """The batches of a phase: the only randomness, drawn as the library promises to draw it."""
    count = len(simulation.population.shares[name].train)
    size = simulation.config.train.batch_size
    stream = simulation.streams.torch(f"batches.{phase}", round=round, client=name)
    return [
        [rows.tolist() for rows in torch.randperm(count, generator=stream).split(size)]
        for _ in range(epochs)
    ]


def _setup(simulation: Simulation) -> tuple[dict[str, reference.ReferenceClient], reference.Hyper]:
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


SETTINGS = {
    "models__pool": ["cnn1", "cnn2", "cnn3", "cnn5"],
    "models__assign": "round_robin",
    "train__epochs": 2,
    "train__clip": 1.0,  # low enough to be at work
}


def test_pfedes_is_algorithm_1(tmp_path: Path) -> None:
    config = small(
        "pfedes", **SETTINGS, method__mu=0.3, method__extractor_epochs=2, method__extractor_lr=0.02
    )
    run = Federation(config, out=tmp_path / "run").run()

    simulation = Simulation(config)
    clients, hyper = _setup(simulation)
    start = simulation.method.start([], simulation.context(0))
    theta = {name: tensor.clone() for name, tensor in start.tensors.items()}
    before = dict(theta)
    for round in (1, 2):
        uploads = [
            reference.pfedes_round(
                client,
                theta,
                _orders(simulation, name, "model", round, 2),
                _orders(simulation, name, "extractor", round, 2),
                hyper,
            )
            for name, client in clients.items()
        ]
        theta = reference.average(uploads, [len(client.y) for client in clients.values()])

    for name, client in clients.items():
        torch.testing.assert_close(
            dict(run.model(name).state_dict()), client.weights, **TOLERANCE, check_stride=False
        )
    found = run.store.server_state(run.manifest).tensors
    torch.testing.assert_close(found, theta, **TOLERANCE)
    moved = max(float((found[name] - before[name]).abs().max()) for name in found)
    assert moved > 100 * TOLERANCE["atol"], "the extractor hardly moved: the comparison is idle"


def test_standalone_is_plain_sgd(tmp_path: Path) -> None:
    config = small("standalone", **SETTINGS)
    run = Federation(config, out=tmp_path / "run").run()

    simulation = Simulation(config)
    clients, hyper = _setup(simulation)
    for round in (1, 2):
        for name, client in clients.items():
            orders = _orders(simulation, name, "model", round, 2)
            reference.standalone_round(client, orders, hyper)

    for name, client in clients.items():
        torch.testing.assert_close(
            dict(run.model(name).state_dict()), client.weights, **TOLERANCE, check_stride=False
        )
