"""The library gives what the naive FedGH, FedTGP, FedSSA, FedRE and FedMRL give."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import reference_more as oracle
from recording import Recording, assert_same_way, close, rows_by_label
from reference import Order, Weights, average, fedproto_round

Record = Callable[..., Recording]
ROUNDS = (1, 2, 3)

# Where the specification leaves a choice, these comparisons take it thus:
# - one generator per round gives the server's permutations, in the order of the epochs, also where
#   all rows are one batch;
# - FedRE draws `torch.rand(c)` in single precision, for the own classes in ascending order;
# - FedSSA's schedule follows the federation's rounds, its history the client's participations;
#   `weighted` counts the samples on the card;
# - FedMRL's initial projector is every client's own: stream `init.projector` with its name.


def server_orders(seen: Recording, round: int, rows: int, size: int, epochs: int) -> list[Order]:
    """The server's batches: one stream a round, one permutation an epoch, the last batch kept."""
    stream = seen.simulation.streams.torch("server.batches", round=round)
    return [
        [batch.tolist() for batch in torch.randperm(rows, generator=stream).split(size or rows)]
        for _ in range(epochs)
    ]


def assert_server_went(seen: Recording, expected: Weights, prefix: str = "") -> None:
    """The server's state ends where the oracle's does, seen from where both began."""
    found = seen.run.store.server_state(seen.run.manifest).tensors
    named = [name for name in found if name.startswith(prefix)]
    assert_same_way(
        {name.removeprefix(prefix): found[name] for name in named},
        expected,
        {name.removeprefix(prefix): seen.start.tensors[name] for name in named},
    )


@pytest.mark.parametrize("size", [3, 0], ids=["batches", "all_at_once"])
def test_fedgh(record: Record, size: int) -> None:
    seen = record(
        "fedgh", method__server_lr=0.1, method__server_epochs=2, method__server_batch=size
    )
    shared: Weights = seen.start.tensors
    for round in ROUNDS:
        reports = {}
        for name in seen.selected(round):
            close(seen.down(round, name).tensors, shared)
            orders = seen.orders(round, name)
            reports[name] = oracle.fedgh_round(seen.clients[name], shared, orders, seen.hyper)
            assert seen.up(round, name).tensors.keys() == {"prototypes"}
            close(rows_by_label(seen.up(round, name), "prototypes"), reports[name])
        rows = sum(map(len, reports.values()))
        orders = server_orders(seen, round, rows, size, epochs=2)
        assert size == 0 or len(orders[0]) > 1, "one batch shows nothing of the order"
        shared = oracle.fedgh_server(shared, reports, orders, 0.1)
    seen.assert_models_agree()
    assert_server_went(seen, shared)


@pytest.mark.parametrize(
    ("kind", "largest"), [("nearest", 100), ("farthest", 100), ("nearest", 0.5)]
)
def test_fedtgp(record: Record, kind: str, largest: float) -> None:
    seen = record(
        "fedtgp",
        method__lambda=2.0,
        method__server_epochs=3,
        method__server_lr=0.05,
        method__server_batch=3,
        method__margin=kind,
        method__margin_max=largest,
    )
    tgp: Weights = {
        name.removeprefix("tgp/"): tensor
        for name, tensor in seen.start.tensors.items()
        if name.startswith("tgp/")
    }
    assert tgp.keys() == {"embedding.weight", "hidden.weight", "hidden.bias", "out.weight",
                          "out.bias"}  # fmt: skip
    reported: set[int] = set()
    deltas = []
    for round in ROUNDS:
        g = oracle.trainable_prototypes(tgp)
        reports = {}
        for name in seen.selected(round):
            client = seen.clients[name]
            own = {y: g[y] for y in oracle.own_classes(client) if y in reported}
            close(rows_by_label(seen.down(round, name), "prototypes"), own)
            orders = seen.orders(round, name)
            reports[name] = fedproto_round(client, own, orders, seen.hyper, 2.0)
            up = seen.up(round, name)
            close(rows_by_label(up, "prototypes"), reports[name])
            assert "counts" not in up.meta
        reported |= {y for means in reports.values() for y in means}
        deltas.append(oracle.margin(oracle.mean_by_class(reports), kind, largest))
        orders = server_orders(seen, round, sum(map(len, reports.values())), 3, epochs=3)
        tgp = oracle.fedtgp_server(tgp, reports, orders, 0.05, deltas[-1])
    assert (max(deltas) == largest) is (largest < 100), "the cap is at work where it should be"
    seen.assert_models_agree()
    assert_server_went(seen, tgp, "tgp/")
    state = seen.run.store.server_state(seen.run.manifest)
    assert state.meta["labels"] == sorted(reported)
    g = oracle.trainable_prototypes(tgp)
    close(rows_by_label(state, "prototypes"), {y: g[y] for y in sorted(reported)})


@pytest.mark.parametrize(("fusion", "averaging"), [("sum", "uniform"), ("convex", "weighted")])
def test_fedssa(record: Record, fusion: str, averaging: str) -> None:
    seen = record(
        "fedssa",
        method__mu=0.6,
        method__stable_rounds=4,  # so that history still counts in round 3
        method__fusion=fusion,
        method__averaging=averaging,
    )
    shared: dict[int, tuple[Tensor, Tensor]] = {
        y: (seen.start.tensors["weight"][y], seen.start.tensors["bias"][y]) for y in range(10)
    }
    took_part = dict.fromkeys(seen.clients, 0)
    for round in ROUNDS:
        mu = oracle.fading(0.6, 4, round)
        reports, counts = {}, {}
        for name in seen.selected(round):
            client = seen.clients[name]
            own = oracle.own_classes(client)
            down, up = seen.down(round, name), seen.up(round, name)
            close(rows_by_label(down, "weight"), {y: shared[y][0] for y in own})
            close(rows_by_label(down, "bias"), {y: shared[y][1] for y in own})
            orders = seen.orders(round, name)
            new = oracle.fedssa_round(client, shared, mu, fusion, orders, seen.hyper)
            close(rows_by_label(up, "weight"), {y: new[y][0] for y in own})
            close(rows_by_label(up, "bias"), {y: new[y][1] for y in own})
            client.last_round = round
            took_part[name] += 1
            reports[name] = new
            counts[name] = {
                y: int((client.y == y).sum()) if averaging == "weighted" else 1 for y in own
            }
        shared = oracle.fedssa_server(shared, reports, counts)
    assert max(took_part.values()) > 1, "nobody has a history: the comparison is idle"
    seen.assert_models_agree()
    expected = {
        "weight": torch.stack([shared[y][0] for y in range(10)]),
        "bias": torch.stack([shared[y][1] for y in range(10)]),
    }
    assert_server_went(seen, expected)
    for name, count in took_part.items():
        if count:
            kept = seen.version(name).state["kept.rounds"]
            assert kept.dtype == torch.int64
            assert kept.shape == ()
            assert kept.item() == count


@pytest.mark.parametrize("size", [1, 0], ids=["batches", "all_at_once"])
def test_fedre(record: Record, size: int) -> None:
    seen = record(
        "fedre", method__server_lr=0.1, method__server_epochs=2, method__server_batch=size
    )
    shared: Weights = seen.start.tensors
    for round in ROUNDS:
        reports = {}
        for name in seen.selected(round):
            close(seen.down(round, name).tensors, shared)
            orders = seen.orders(round, name)
            means = oracle.fedgh_round(seen.clients[name], shared, orders, seen.hyper)
            stream = seen.simulation.streams.torch("entangle", round=round, client=name)
            encoding = oracle.mixture(torch.rand(len(means), generator=stream))
            up = seen.up(round, name)
            mixed = oracle.entangled(encoding, means)
            close(up.tensors, {"representation": mixed, "encoding": encoding})
            assert up.meta["labels"] == sorted(means)
            reports[name] = mixed, dict(zip(sorted(means), encoding.tolist(), strict=True))
        orders = server_orders(seen, round, len(reports), size, epochs=2)
        shared = oracle.fedre_server(shared, reports, orders, 0.1)
    seen.assert_models_agree()
    assert_server_went(seen, shared)


@pytest.mark.parametrize(
    ("after_aggregation", "projector"), [(False, "kept"), (True, "kept"), (False, "random")]
)
def test_fedmrl(record: Record, after_aggregation: bool, projector: str) -> None:
    seen = record(
        "fedmrl",
        method__representation=60,
        method__small_weight=0.7,
        method__projector=projector,
        evaluate__after_aggregation=after_aggregation,
    )
    small: Weights = seen.start.tensors
    assert small["fc2.weight"].shape == (60, 500)
    smalls: dict[str, Weights] = dict.fromkeys(seen.clients, small)
    projectors: dict[str, Weights] = {}
    for name in seen.clients:
        with seen.simulation.streams.ambient("init.projector", client=name):
            fresh = nn.Linear(60 + 500, 500)
        projectors[name] = {k: t.detach() for k, t in fresh.state_dict().items()}
    initial = dict(projectors)
    for round in ROUNDS:
        uploads = []
        for name in seen.selected(round):
            close(seen.down(round, name).tensors, small)
            client, orders = seen.clients[name], seen.orders(round, name)
            smalls[name], trained = oracle.fedmrl_round(
                client, small, projectors[name], orders, seen.hyper, 0.7
            )
            if projector == "kept":
                projectors[name] = trained
            close(seen.up(round, name).tensors, smalls[name])
            uploads.append((smalls[name], len(client.y)))
        small = average([u for u, _ in uploads], [n for _, n in uploads])
    assert_server_went(seen, small)
    for name, client in seen.clients.items():
        if seen.rounds_of(name):
            state = seen.version(name).state
            parts = {
                part: {k.removeprefix(part): t for k, t in state.items() if k.startswith(part)}
                for part in ("model.", "kept.small.", "kept.projector.")
            }
            assert sum(map(len, parts.values())) == len(state), "nothing else is kept"
            assert_same_way(parts["model."], client.weights, seen.starts[name])
            assert_same_way(parts["kept.small."], smalls[name], seen.start.tensors)
            if projector == "kept":
                assert_same_way(parts["kept.projector."], projectors[name], initial[name])
            else:
                torch.testing.assert_close(parts["kept.projector."], initial[name], rtol=0, atol=0)
        # Also of clients that were never selected: their small model and projector are initial.
        beside = small if after_aggregation else smalls[name]
        expected = oracle.fedmrl_forward(client.weights, beside, projectors[name], client.x)
        with torch.no_grad():
            close(seen.run.model(name).eval()(client.x), expected.detach())
