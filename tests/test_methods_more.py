"""What FedGH, FedTGP, FedSSA, FedRE and FedMRL have in common: keys, payloads, costs, refusals."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from by_hand import context, made, run_of, same, server_state, upload
from pfedes import Card, ConfigError, Payload, PfedesError, WireError
from pfedes.core.payload import State
from pfedes.core.protocol import Failure, Reply, Task
from pfedes.fleet.serial import SerialFleet
from pfedes.methods.base import Received
from pfedes.population.simulation import Simulation
from running import result, small

NAMES = ("fedtgp", "fedgh", "fedssa", "fedre", "fedmrl")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


DEFAULTS: dict[str, dict[str, Any]] = {
    "fedtgp": {"lambda": 10, "server_epochs": 100, "server_lr": 0.01, "server_batch": 10,
               "margin_max": 100, "margin": "nearest", "table": "own", "inference": "head"},
    "fedgh": {"server_lr": 0.01, "server_epochs": 1, "server_batch": 10},
    "fedssa": {"mu": 0.5, "stable_rounds": 2, "fusion": "sum", "averaging": "uniform"},
    "fedre": {"server_lr": 0.01, "server_epochs": 1, "server_batch": 32},
    "fedmrl": {"representation": 100, "small_weight": 1, "shared_model": "cnn5",
               "averaging": "weighted", "projector": "kept"},
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_defaults(name: str) -> None:
    found = made(name).config.model_dump(by_alias=True)
    assert {key: found.get(key) for key in DEFAULTS[name]} == DEFAULTS[name]
    assert made(name).averages_parameters is (name == "fedmrl")


@pytest.mark.parametrize(
    ("name", "key", "legal", "illegal"),
    [
        ("fedtgp", "lambda", [0], [-1]),
        ("fedtgp", "server_epochs", [1], [0]),
        ("fedtgp", "server_lr", [1e-6], [0]),
        ("fedtgp", "server_batch", [0], [-1]),
        ("fedtgp", "margin_max", [0], [-1]),
        ("fedtgp", "margin", ["farthest"], ["middle"]),
        ("fedgh", "server_lr", [0], [-1]),
        ("fedgh", "server_epochs", [1], [0]),
        ("fedgh", "server_batch", [0], [-1]),
        ("fedssa", "mu", [0, 1], [-0.1, 1.1]),
        ("fedssa", "stable_rounds", [0], [-1]),
        ("fedssa", "fusion", ["convex"], ["product"]),
        ("fedssa", "averaging", ["weighted"], ["median"]),
        ("fedre", "server_lr", [0], [-1]),
        ("fedre", "server_epochs", [1], [0]),
        ("fedre", "server_batch", [0], [-1]),
        ("fedmrl", "representation", [1], [0]),
        ("fedmrl", "small_weight", [0], [-1]),
        ("fedmrl", "shared_model", ["cnn1"], ["cnn9"]),
        ("fedmrl", "projector", ["random"], ["lost"]),
    ],
)
def test_legal_values(name: str, key: str, legal: list[Any], illegal: list[Any]) -> None:
    for value in legal:
        assert made(name, **{key: value}).config.model_dump(by_alias=True)[key] == value
    for value in illegal:
        with pytest.raises(ConfigError, match=key):
            made(name, **{key: value})


def test_initial_states_come_from_their_streams() -> None:
    simulation = Simulation(small("lg_fedavg"))
    cards, ctx = simulation.population.cards({"width"}), simulation.context(0)
    cards = [replace(card, classes={0: 1}) for card in cards]
    head = simulation.method.start(cards, ctx).tensors
    for name in ("fedgh", "fedssa", "fedre"):
        assert same(made(name).start(cards, ctx).tensors, head)
    with ctx.streams.ambient("init.tgp"):
        parts = {"embedding": nn.Embedding(10, 500), "hidden": nn.Linear(500, 500),
                 "out": nn.Linear(500, 500)}  # fmt: skip
    tgp = {
        f"tgp/{part}.{name}": tensor
        for part, module in parts.items()
        for name, tensor in module.state_dict().items()
    }
    state = made("fedtgp").start(cards, ctx)
    assert same(state.tensors, {**tgp, "prototypes": torch.zeros(0, 500)})
    assert state.meta == {"labels": []}
    with ctx.streams.ambient("init.shared"):
        layers = {"conv1": nn.Conv2d(3, 16, 5), "conv2": nn.Conv2d(16, 32, 5),
                  "fc1": nn.Linear(800, 500), "fc2": nn.Linear(500, 100),
                  "fc3": nn.Linear(100, 10)}  # fmt: skip
    small_model = {
        f"{layer}.{name}": tensor
        for layer, module in layers.items()
        for name, tensor in module.state_dict().items()
    }
    assert same(made("fedmrl").start(cards, ctx).tensors, small_model)


OWN = {10: 2, 100: 10}  # classes per client


def floats(name: str, classes: int) -> tuple[int, int, int]:
    """Down in round 1, down in round 2 and up, per client."""
    c, head = OWN[classes], classes * 501
    return {
        "fedtgp": (0, c * 500, c * 500),
        "fedgh": (head, head, c * 500),
        "fedssa": (c * 501, c * 501, c * 501),
        "fedre": (head, head, 500 + c),
        "fedmrl": ({10: 465_658, 100: 474_748}[classes],) * 3,
    }[name]


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("name", NAMES)
def test_payloads_are_exactly_those_specified(name: str, classes: int) -> None:
    options = {"method__server_epochs": 1} if name == "fedtgp" else {}
    simulation = Simulation(
        small(
            name,
            data__source=f"synthetic:samples={8 * classes},classes={classes}",
            data__limit=0,
            partition__clients=10,
            partition__classes_per_client=OWN[classes],
            train__batch_size=64,
            **options,
        )
    )
    method, ctx = simulation.method, simulation.context(1)
    cards = simulation.population.cards(method.needs)[:2]
    state = method.start(cards, ctx)
    first, second, up = floats(name, classes)
    uploads = []
    for card in cards:
        if name != "fedmrl":
            assert set((card.classes or {}).values()) == {1}, "counts never travel"
        wire, download = method.allowed(card, ctx), method.download(state, card, ctx)
        wire.down.check(download)
        assert download.floats == first
        client = simulation.population.client(card.name)
        method.prepare(client, ctx)
        sent = method.client_round(client, download, ctx)
        payload = Payload(sent.tensors, sent.meta)
        wire.up.check(payload)
        assert payload.floats == up
        # Class ids are all the metadata there is.
        assert payload.metadata == (0 if name == "fedmrl" else OWN[classes])
        uploads.append(Received(card, payload))
    state = method.aggregate(state, uploads, ctx)
    later = simulation.context(2)
    assert [method.download(state, replace(c, accepted=1), later).floats for c in cards] == [
        second,
        second,
    ]


def test_fedtgp_can_send_the_whole_table() -> None:
    method, ctx = made("fedtgp", table="full"), context()
    start = made("fedtgp").start([Card("a", 5, (3, 32, 32), classes={1: 1}, width=500)], ctx)
    state = State({**start.tensors, "prototypes": torch.zeros(10, 500)}, {"labels": [*range(10)]})
    card = Card("a", 5, (3, 32, 32), classes={1: 1}, width=500)
    download = method.download(state, card, ctx)
    assert download.floats == 5000
    method.allowed(card, ctx).down.check(download)
    assert made("fedtgp").download(state, card, ctx).meta["labels"] == [1]


@pytest.mark.parametrize(("averaging", "counted"), [("uniform", False), ("weighted", True)])
def test_fedssa_learns_counts_only_to_weigh_by_them(averaging: str, counted: bool) -> None:
    simulation = Simulation(small("fedssa", method__averaging=averaging))
    cards = simulation.population.cards(simulation.method.needs)
    counts = {count for card in cards for count in (card.classes or {}).values()}
    assert (counts != {1}) is counted


@pytest.mark.parametrize("name", ["fedtgp", "fedgh", "fedssa", "fedre"])
def test_representations_of_different_width_are_refused(name: str) -> None:
    cards = [Card("a", 3, (3, 32, 32), classes={0: 1}, width=500),
             Card("b", 3, (3, 32, 32), classes={0: 1}, width=64)]  # fmt: skip
    (problem,) = made(name).check(cards, context())
    assert problem.client == "b"
    assert "its representation has 64 numbers, that of a 500" in problem.what
    assert not made(name).check(cards[:1], context())


def test_fedmrl_refuses_models_narrower_than_the_small_one() -> None:
    cards = [Card("a", 3, (3, 32, 32), width=100), Card("b", 3, (3, 32, 32), width=99)]
    (problem,) = made("fedmrl").check(cards, context())
    assert problem.client == "b"
    assert not made("fedmrl", representation=99).check(cards, context())


@pytest.mark.parametrize("name", ["fedgh", "fedssa", "fedre"])
def test_a_head_without_bias_is_refused(name: str) -> None:
    simulation = Simulation(small(name))
    method, ctx = simulation.method, simulation.context(1)
    cards = simulation.population.cards(method.needs)
    client = simulation.population.client(cards[0].name)
    client.model = nn.Sequential(
        nn.Flatten(), nn.Linear(3 * 32 * 32, 500), nn.ReLU(), nn.Linear(500, 10, bias=False)
    )
    download = method.download(method.start(cards, ctx), cards[0], ctx)

    def take_part() -> None:
        method.prepare(client, ctx)
        method.client_round(client, download, ctx)

    with pytest.raises(PfedesError, match="bias"):
        take_part()


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("fedtgp", {"prototypes": [[1e30, 0.0]]}),
        ("fedgh", {"prototypes": [[1e30, 0.0]]}),
        ("fedre", {"representation": [1e30, 0.0], "encoding": [1.0]}),
    ],
)
def test_one_hostile_row_does_not_void_a_round(name: str, tensors: dict[str, Any]) -> None:
    """A finite number whose square is not would reach everybody."""
    sent = upload("a", tensors, [0])
    with pytest.raises(WireError):
        made(name).allowed(sent.card, context(classes=2)).up.check(sent.payload)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_uploads_is_irrelevant(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"method__server_epochs": 2} if name == "fedtgp" else {}
    expected = result(run_of(name, tmp_path / "straight", **keys))
    honest = SerialFleet.round

    def reversed_round(fleet: SerialFleet, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
        yield from list(honest(fleet, tasks))[::-1]

    monkeypatch.setattr(SerialFleet, "round", reversed_round)
    assert result(run_of(name, tmp_path / "reversed", **keys))["server"] == expected["server"]


def test_flops_of_clients_and_server(tmp_path: Path) -> None:
    """One round of four CNN-5: 1 and a pass, 1, and 2.04 times Standalone."""
    common: dict[str, Any] = {"models__pool": ["cnn5"], "train__rounds": 1}
    runs = {
        name: run_of(name, tmp_path, **common, **keys)
        for name, keys in {
            "standalone": {},
            "fedproto": {},
            "fedtgp": {"method__server_epochs": 2, "method__server_batch": 5},
            "fedgh": {"method__server_epochs": 3},
            "fedssa": {},
            "fedre": {"method__server_epochs": 3},
            "fedmrl": {},
        }.items()
    }
    flops = {name: run.rounds[0]["flops"] for name, run in runs.items()}
    assert flops["fedtgp"] == flops["fedgh"] == flops["fedre"] == flops["fedproto"]
    assert flops["fedssa"] == flops["standalone"]
    assert flops["fedmrl"] == pytest.approx(2.04 * flops["standalone"], rel=0.005)

    on_server = {name: run.rounds[0].get("flops_server", 0) for name, run in runs.items()}
    rows, L, d = 4 * 3, 10, 500
    assert on_server["fedgh"] == 3 * 4 * rows * L * d
    assert on_server["fedre"] == 3 * 4 * 4 * L * d
    steps = 2 * math.ceil(rows / 5)
    training = steps * 12 * L * d**2 + 2 * 4 * rows * L * d
    read_out = 4 * L * d**2  # g once more, for the prototypes; it may be counted or not
    assert on_server["fedtgp"] - training in (0, read_out)
    assert on_server["fedssa"] == on_server["fedmrl"] == on_server["standalone"] == 0


@pytest.mark.parametrize("name", ["fedgh", "fedre"])
def test_after_aggregation_everybody_has_the_global_head(name: str, tmp_path: Path) -> None:
    run = run_of(name, tmp_path, evaluate__after_aggregation=True, train__participation=0.5)
    shared = server_state(run).tensors
    for client in run.manifest.clients:
        found = run.model(client).state_dict()
        assert same({part: found[f"fc3.{part}"] for part in shared}, shared)
