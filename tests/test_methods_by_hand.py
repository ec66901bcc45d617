"""Limits and hand examples of FedTGP, FedGH, FedSSA, FedRE and FedMRL."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pfedes.core.training
import reference_more as oracle
from by_hand import context, digests, made, run_of, same, server_state, upload
from pfedes import Card, Client, Federation, Payload, PfedesError, WireError
from pfedes.core.payload import State
from pfedes.core.train_config import TrainConfig
from pfedes.core.training import Learner
from pfedes.population.simulation import Simulation
from running import result, small

STANDING_STILL = 1e-30  # a rate at which no weight moves; 0 is refused


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- FedTGP ---


def test_fedtgp_without_its_term_is_standalone(tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "partition__classes_per_client": 5,
        "train__participation": 0.75,
        "train__rounds": 3,
    }
    alone = digests(run_of("standalone", tmp_path, **common))
    quick = {"method__server_epochs": 1, **common}
    assert digests(run_of("fedtgp", tmp_path, method__lambda=0, **quick)) == alone
    assert digests(run_of("fedtgp", tmp_path / "pulled", **quick)) != alone


def identity_tgp(rows: list[list[float]]) -> State:
    """Trainable prototypes that are their embedding: both layers are the identity."""
    d = len(rows[0])
    return State(
        {
            "tgp/embedding.weight": torch.tensor(rows),
            "tgp/hidden.weight": torch.eye(d),
            "tgp/hidden.bias": torch.zeros(d),
            "tgp/out.weight": torch.eye(d),
            "tgp/out.bias": torch.zeros(d),
            "prototypes": torch.zeros(0, d),
        },
        {"labels": []},
    )


def tgp_of(state: State) -> dict[str, Tensor]:
    named = state.tensors.items()
    return {k.removeprefix("tgp/"): t for k, t in named if k.startswith("tgp/")}


def test_fedtgp_loss_by_hand() -> None:
    distances = torch.tensor([3.0, 5.0])
    assert oracle.contrast(distances, 0, 0.0).item() == pytest.approx(0.126928, abs=1e-6)
    assert oracle.contrast(distances, 0, 1.0).item() == pytest.approx(0.313262, abs=1e-6)


def test_fedtgp_step_by_hand() -> None:
    """p = 0 with g at distances 3 and 5: the gradient of either distance is 1 - exp(-0.126928)."""
    method = made("fedtgp", server_epochs=1, server_lr=0.1)
    sent = upload("a", {"prototypes": [[0.0, 0.0]]}, [0])
    # A single class has no margin, else it would be as large as allowed.
    state = method.aggregate(identity_tgp([[3.0, 0.0], [0.0, 5.0]]), [sent], context(classes=2))
    found, a = tgp_of(state), 0.1 * (1 - math.exp(-0.126928))
    close: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
    expected = {
        "embedding.weight": [[3 - a, 0.0], [0.0, 5 + a]],
        "hidden.weight": [[1 - 3 * a, 0.0], [0.0, 1 + 5 * a]],
        "hidden.bias": [-a, a],
        "out.weight": [[1 - 3 * a, 0.0], [0.0, 1 + 5 * a]],
        "out.bias": [-a, a],
    }
    torch.testing.assert_close(found, {k: torch.tensor(v) for k, v in expected.items()}, **close)
    assert state.meta["labels"] == [0]  # class 1 was a negative only
    g = oracle.trainable_prototypes(found)
    torch.testing.assert_close(state.tensors["prototypes"], g[:1], **close)


@pytest.mark.parametrize(("delta", "loss"), [(0.0, 0.126928), (1.0, 0.313262)])
def test_fedtgp_margin_by_hand(delta: float, loss: float) -> None:
    """Two rows, each with distances 3 to its own g and 5 to the other: equal losses."""
    method = made("fedtgp", server_epochs=1, server_lr=0.1, margin_max=delta)
    sent = [
        upload("a", {"prototypes": [[0.0, 0.0]]}, [0]),
        upload("b", {"prototypes": [[3.0, 5.0]]}, [1]),
    ]
    state = method.aggregate(identity_tgp([[3.0, 0.0], [0.0, 5.0]]), sent, context(classes=2))
    a = 0.1 * (1 - math.exp(-loss)) / 2
    expected = torch.tensor([[1 - 3 * a, 5 * a], [-3 * a, 1 + 5 * a]])
    torch.testing.assert_close(state.tensors["tgp/out.weight"], expected, rtol=1e-5, atol=1e-6)
    assert state.meta["labels"] == [0, 1]


@pytest.mark.parametrize(
    ("keys", "delta"),
    [({}, 7.0), ({"margin": "farthest"}, 10.0), ({"margin_max": 5}, 5.0)],
)
def test_fedtgp_margin_of_three_classes(keys: dict[str, Any], delta: float) -> None:
    """Class means 0, 3 and 10, that of class 0 from two clients."""
    kind, largest = keys.get("margin", "nearest"), keys.get("margin_max", 100)
    means = {0: torch.tensor([0.0]), 1: torch.tensor([3.0]), 2: torch.tensor([10.0])}
    assert oracle.margin(means, kind, largest) == delta
    assert oracle.margin({0: means[0]}, kind, largest) == 0

    reports = {"a": {0: [-2.0, 0.0], 1: [3.0, 0.0]}, "b": {0: [2.0, 0.0], 2: [10.0, 0.0]}}
    start = identity_tgp([[0.5, 0.1], [3.5, 0.1], [10.5, 0.1]])
    sent = [upload(n, {"prototypes": [*r.values()]}, [*r]) for n, r in reports.items()]
    method = made("fedtgp", server_epochs=1, server_lr=0.1, server_batch=0, **keys)
    rows = {n: {y: torch.tensor(p) for y, p in r.items()} for n, r in reports.items()}
    expected = oracle.fedtgp_server(tgp_of(start), rows, [[[0, 1, 2, 3]]], 0.1, delta)
    found = tgp_of(method.aggregate(start, sent, context(classes=3)))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_fedtgp_survives_a_prototype_that_is_reached() -> None:
    """The root of zero has no gradient; the other classes are still pushed away."""
    start = identity_tgp([[3.0, 1.0], [0.0, 5.0]])
    method = made("fedtgp", server_epochs=1, server_lr=0.1)
    sent = upload("a", {"prototypes": [[3.0, 1.0]]}, [0])
    state = method.aggregate(start, [sent], context(classes=2))
    assert state.is_finite()
    rows = {"a": {0: torch.tensor([3.0, 1.0])}}
    expected = oracle.fedtgp_server(tgp_of(start), rows, [[[0]]], 0.1, 0.0)
    torch.testing.assert_close(tgp_of(state), expected, rtol=1e-4, atol=1e-5)


def test_fedtgp_moves_classes_that_nobody_reported_this_round() -> None:
    method, ctx = made("fedtgp", server_epochs=1, server_lr=0.1), context(classes=3)
    start = identity_tgp([[3.0, 0.0], [0.0, 5.0], [2.0, 2.0]])
    first = method.aggregate(start, [upload("a", {"prototypes": [[1.0, 4.0]]}, [1])], ctx)
    later = method.aggregate(first, [upload("b", {"prototypes": [[2.5, 1.0]]}, [0])], ctx)
    assert later.meta["labels"] == [0, 1]
    assert not torch.equal(later.tensors["prototypes"][1], first.tensors["prototypes"][0])
    g = oracle.trainable_prototypes(tgp_of(later))
    torch.testing.assert_close(later.tensors["prototypes"], g[:2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("inference", ["nearest_own", "nearest_known"])
def test_fedtgp_inference_by_prototypes(inference: str) -> None:
    method = made("fedtgp", inference=inference)
    simulation = Simulation(small("fedtgp"))
    client = simulation.population.client("client-0000")
    own = sorted(set(client.train.labels.tolist()))
    prototypes = torch.randn(10, 500, generator=torch.Generator().manual_seed(0))
    download = Payload({"prototypes": prototypes}, {"labels": [*range(10)]})
    model = method.personal(client, download, simulation.context(1))
    with torch.no_grad():
        logits = model(client.train.batch(slice(5)).x)
    among = own if inference == "nearest_own" else [*range(10)]
    assert (logits[0] > -torch.inf).nonzero().flatten().tolist() == among


# --- FedGH ---


def test_fedgh_at_rate_0_never_changes_its_head(tmp_path: Path) -> None:
    config = small("fedgh", method__server_lr=0, train__rounds=3)
    run = Federation(config, out=tmp_path / "run").run()
    simulation = Simulation(config)
    cards = simulation.population.cards(simulation.method.needs)
    start = simulation.method.start(cards, simulation.context(0)).tensors
    assert same(server_state(run).tensors, start)


def test_fedgh_begins_as_lg_fedavg_does(tmp_path: Path) -> None:
    first = {name: digests(run_of(name, tmp_path, train__rounds=1)) for name in
             ("fedgh", "lg_fedavg", "standalone")}  # fmt: skip
    assert first["fedgh"] == first["lg_fedavg"] != first["standalone"]


def zero_head() -> State:
    return State({"weight": torch.zeros(2, 2), "bias": torch.zeros(2)})


def test_fedgh_server_by_hand() -> None:
    sent = upload("a", {"prototypes": [[2.0, 0.0]]}, [0])
    state = made("fedgh", server_lr=0.1).aggregate(zero_head(), [sent], context(classes=2))
    expected = {"weight": torch.tensor([[0.1, 0.0], [-0.1, 0.0]]),
                "bias": torch.tensor([0.05, -0.05])}  # fmt: skip
    torch.testing.assert_close(state.tensors, expected)
    rows = {"a": {0: torch.tensor([2.0, 0.0])}}
    by_oracle = oracle.fedgh_server(zero_head().tensors, rows, [[[0]]], 0.1)
    torch.testing.assert_close(by_oracle, expected)


# --- FedSSA ---


def test_fedssa_is_lg_fedavg_where_all_hold_all_classes(tmp_path: Path) -> None:
    common: dict[str, Any] = {
        "data__limit": 400,
        "partition__classes_per_client": 10,
        "train__participation": 0.75,
        "train__rounds": 3,
    }
    cards = Simulation(small("fd", **common)).population.cards({"classes"})
    assert all(len(card.classes or {}) == 10 for card in cards)
    rows = run_of("fedssa", tmp_path, method__mu=0, **common)
    whole = run_of("lg_fedavg", tmp_path, method__averaging="uniform", **common)
    assert digests(rows) == digests(whole)
    assert same(server_state(rows).tensors, server_state(whole).tensors)


def test_fedssa_with_disjoint_classes_is_standalone_from_the_common_rows(tmp_path: Path) -> None:
    common: dict[str, Any] = {"partition__clients": 5, "partition__classes_per_client": 2}
    run = run_of("fedssa", tmp_path, method__mu=0, **common)
    simulation = Simulation(small("lg_fedavg", **common))
    cards = simulation.population.cards({"width"})
    head = simulation.method.start(cards, simulation.context(0)).tensors
    seen: set[int] = set()
    for name in simulation.population.names:
        client = simulation.population.client(name)
        own = sorted(set(client.train.labels.tolist()))
        assert seen.isdisjoint(own)
        seen.update(own)
        with torch.no_grad():
            client.model.get_parameter("fc3.weight")[own] = head["weight"][own]
            client.model.get_parameter("fc3.bias")[own] = head["bias"][own]
        for round in (1, 2):
            made("standalone").client_round(client, Payload(), simulation.context(round))
        assert same(dict(run.model(name).state_dict()), dict(client.model.state_dict()))


def fused_by_fedssa(
    round: int, participations: int, **keys: Any
) -> tuple[Client, Payload, list[int]]:
    """A client with own rows of 2 and foreign ones of 7, after a round that brought 1."""
    simulation = Simulation(small("fedssa", train__lr=STANDING_STILL))
    method, ctx = made("fedssa", **keys), simulation.context(round)
    client = simulation.population.client("client-0000")
    own = sorted(set(client.train.labels.tolist()))
    with torch.no_grad():
        for parameter in client.model.get_submodule("fc3").parameters():
            parameter.fill_(7.0)
            parameter[own] = 2.0
    method.prepare(client, ctx)
    if participations:
        client.kept["rounds"] = torch.tensor(participations)
    shared = State({"weight": torch.ones(10, 500), "bias": torch.ones(10)})
    card = simulation.population.card("client-0000", method.needs)
    sent = method.client_round(client, method.download(shared, card, ctx), ctx)
    assert client.kept["rounds"].item() == participations + 1
    return client, Payload(sent.tensors, sent.meta), own


@pytest.mark.parametrize(
    ("round", "participations", "keys", "expected"),
    [
        (1, 1, {}, 2.0),  # mu_0 = 0.5
        (2, 1, {}, 1.707107),  # mu_1 = 0.353553
        (3, 1, {}, 1.0),  # mu_2 = 0
        (4, 1, {}, 1.0),
        (2, 1, {"fusion": "convex"}, 1.353553),
        (2, 0, {}, 1.0),  # nothing is kept at the first participation
        (2, 0, {"fusion": "convex"}, 1.0),
        (1, 1, {"stable_rounds": 0}, 1.0),
    ],
)
def test_fedssa_fuses_own_rows_and_keeps_foreign_ones(
    round: int, participations: int, keys: dict[str, Any], expected: float
) -> None:
    client, sent, own = fused_by_fedssa(round, participations, **keys)
    assert sent.meta == {"labels": own}
    torch.testing.assert_close(
        sent.tensors,
        {
            "weight": torch.full((len(own), 500), expected),
            "bias": torch.full((len(own),), expected),
        },
    )
    foreign = sorted(set(range(10)) - set(own))
    assert (client.model.get_parameter("fc3.weight")[foreign] == 7).all()
    assert (client.model.get_parameter("fc3.bias")[foreign] == 7).all()


def test_fedssa_schedule_by_hand() -> None:
    found = [oracle.fading(0.5, 2, round) for round in (1, 2, 3, 4)]
    assert found == pytest.approx([0.5, 0.353553, 0, 0], abs=1e-6)
    one, two = torch.ones(1), torch.full((1,), 2.0)
    assert oracle.fused(one, two, found[1], "sum").item() == pytest.approx(1.707107)
    assert oracle.fused(one, two, found[1], "convex").item() == pytest.approx(1.353553)


@pytest.mark.parametrize(("averaging", "expected"), [("uniform", 2.0), ("weighted", 1.5)])
def test_fedssa_server_by_hand(averaging: str, expected: float) -> None:
    """Rows 1 and 3 of a class, from clients with 30 and 10 samples of it."""
    sent = [
        upload("a", {"weight": [[1.0, 1.0]], "bias": [1.0]}, [0], [30]),
        upload("b", {"weight": [[3.0, 3.0]], "bias": [3.0]}, [0], [10]),
    ]
    start = State({"weight": torch.full((2, 2), 9.0), "bias": torch.full((2,), 9.0)})
    state = made("fedssa", averaging=averaging).aggregate(start, sent, context(classes=2))
    assert state.tensors["weight"].tolist() == [[expected] * 2, [9.0] * 2]  # nobody has class 1
    assert state.tensors["bias"].tolist() == [expected, 9.0]


def test_fedssa_refuses_foreign_rows() -> None:
    card = upload("a", {}, [0]).card
    foreign = upload("a", {"weight": [[1.0, 1.0]], "bias": [1.0]}, [1]).payload
    with pytest.raises(WireError, match="labels"):
        made("fedssa").allowed(card, context(classes=2)).up.check(foreign)


# --- FedRE ---


def first_upload(name: str) -> Payload:
    simulation = Simulation(small(name))
    method, ctx = simulation.method, simulation.context(1)
    cards = simulation.population.cards(method.needs)
    client = simulation.population.client("client-0000")
    method.prepare(client, ctx)
    download = method.download(method.start(cards, ctx), cards[0], ctx)
    sent = method.client_round(client, download, ctx)
    return Payload(sent.tensors, sent.meta)


def test_fedre_mixes_what_fedgh_sends() -> None:
    mixed, plain = first_upload("fedre"), first_upload("fedgh")
    encoding = mixed.tensors["encoding"]
    assert mixed.meta == plain.meta
    assert len(encoding) == 3
    assert (encoding >= 0).all()
    assert encoding.sum().item() == pytest.approx(1)
    expected = encoding @ plain.tensors["prototypes"]
    torch.testing.assert_close(mixed.tensors["representation"], expected, rtol=0, atol=1e-6)


def test_fedre_of_one_class_each_is_fedgh_at_a_larger_rate() -> None:
    """Its loss is a sum, FedGH's a mean."""
    rows = {"a": ([2.0, 0.0], 0), "b": ([0.5, -1.0], 1), "c": ([1.0, 1.0], 0)}
    plain = [upload(name, {"prototypes": [row]}, [y]) for name, (row, y) in rows.items()]
    mixed = [
        upload(name, {"representation": row, "encoding": [1.0]}, [y])
        for name, (row, y) in rows.items()
    ]
    start = State({"weight": torch.tensor([[0.1, -0.2], [0.3, 0.0]]), "bias": torch.zeros(2)})
    ctx = context(classes=2)
    fedre = made("fedre", server_lr=0.1, server_batch=0).aggregate(start, mixed, ctx)
    fedgh = made("fedgh", server_lr=0.3, server_batch=0).aggregate(start, plain, ctx)
    torch.testing.assert_close(fedre.tensors, fedgh.tensors, rtol=0, atol=1e-6)


def test_fedre_by_hand() -> None:
    encoding = torch.tensor([0.25, 0.75])
    mixed = oracle.entangled(encoding, {0: torch.tensor([4.0, 0.0]), 1: torch.tensor([0.0, 4.0])})
    assert mixed.tolist() == [1.0, 3.0]
    assert oracle.mixture(torch.zeros(4)).tolist() == [0.25] * 4
    logits = torch.zeros(2, requires_grad=True)
    loss = oracle.soft_loss(logits, encoding)
    assert loss.item() == pytest.approx(0.693147)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [0.25, -0.25]

    sent = upload("a", {"representation": mixed, "encoding": encoding}, [0, 1])
    state = made("fedre", server_lr=0.1).aggregate(zero_head(), [sent], context(classes=2))
    expected = {"weight": torch.tensor([[-0.025, -0.075], [0.025, 0.075]]),
                "bias": torch.tensor([-0.025, 0.025])}  # fmt: skip
    torch.testing.assert_close(state.tensors, expected)


# --- FedMRL ---


def test_fedmrl_with_a_blind_projector_is_standalone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The projector hands on the own representation, does not learn, and nothing else counts."""
    honest: Callable[[Learner, TrainConfig], torch.optim.SGD] = pfedes.core.training._optimiser

    def frozen(learner: Learner, train: TrainConfig) -> torch.optim.SGD:
        still = isinstance(learner.module, nn.Linear)  # the one learner that is a single layer
        return honest(replace(learner, lr=0.0) if still else learner, train)

    monkeypatch.setattr(pfedes.core.training, "_optimiser", frozen)
    simulation = Simulation(small("fedmrl", method__small_weight=0))
    method = simulation.method
    cards = simulation.population.cards(method.needs)
    download = method.download(
        method.start(cards, simulation.context(0)), cards[0], simulation.context(1)
    )
    fused, alone = (simulation.population.client("client-0000") for _ in range(2))
    method.prepare(fused, simulation.context(1))
    blind = torch.cat([torch.zeros(500, 100), torch.eye(500)], 1)
    fused.kept |= {"projector.weight": blind, "projector.bias": torch.zeros(500)}
    for round in (1, 2):
        ctx = simulation.context(round)
        method.client_round(fused, download, ctx)
        made("standalone").client_round(alone, Payload(), ctx)
        assert torch.equal(fused.kept["projector.weight"], blind)
        assert same(dict(fused.model.state_dict()), dict(alone.model.state_dict()))


def test_fedmrl_fusion_by_hand() -> None:
    """rep_small = 1, rep = (2, 3): z = (1, 5), which the identity for a head shows."""
    weight = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    projector = {"weight": weight, "bias": torch.zeros(2)}
    z = oracle.fused_representation(torch.tensor([[1.0]]), torch.tensor([[2.0, 3.0]]), projector)
    assert z.tolist() == [[1.0, 5.0]]

    simulation = Simulation(small("fedmrl", method__representation=1))
    method, ctx = simulation.method, simulation.context(1)
    client = simulation.population.client("client-0000")
    client.model = nn.Sequential(
        nn.Flatten(), nn.Linear(3 * 32 * 32, 2), nn.ReLU(), nn.Linear(2, 10)
    )
    method.prepare(client, ctx)
    with torch.no_grad():
        for parameter in client.model.parameters():
            parameter.zero_()
        client.model.get_parameter("1.bias").copy_(torch.tensor([2.0, 3.0]))
        client.model.get_parameter("3.weight")[:2] = torch.eye(2)
    client.kept = {name: torch.zeros_like(tensor) for name, tensor in client.kept.items()}
    client.kept["small.fc2.bias"] = torch.ones(1)
    client.kept["projector.weight"] = weight
    model = method.personal(client, None, ctx)
    with torch.no_grad():
        logits = model(client.train.batch(slice(3)).x)
    assert logits[:, :2].tolist() == [[1.0, 5.0]] * 3


def test_fedmrls_projector_changes_every_round(tmp_path: Path) -> None:
    run = run_of("fedmrl", tmp_path, train__rounds=3, runtime__keep_rounds=4)
    for name in run.manifest.clients:
        versions = [run.store.clients.load(run.manifest.run, name, r).state for r in (1, 2, 3)]
        with Simulation(run.config).streams.ambient("init.projector", client=name):
            fresh = nn.Linear(600, 500).weight.detach()
        weights = [fresh, *(state["kept.projector.weight"] for state in versions)]
        assert all(not torch.equal(a, b) for a, b in pairwise(weights))


def test_fedmrl_survives_interruption(tmp_path: Path) -> None:
    common = {"train__participation": 0.75, "train__optimiser": "kept"}
    straight = result(run_of("fedmrl", tmp_path / "straight", train__rounds=3, **common))
    run_of("fedmrl", tmp_path, train__rounds=1, **common)
    assert result(Federation.resume(tmp_path / "fedmrl", rounds=3).run()) == straight


def test_fedmrl_is_for_images() -> None:
    """Refused as for FML: whichever of check() and start() comes first."""
    cards = [Card("a", 3, (7,), width=500)]
    with pytest.raises(PfedesError, match="for images"):
        made("fedmrl").start(cards, context())
