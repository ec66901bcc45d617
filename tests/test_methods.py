"""What every method must satisfy, and what pFedES, Standalone and FedAvg promise."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pfedes import Client, ConfigError, Federation, MethodError, Payload, PFedES, Standalone
from pfedes.core.training import Learner, fit, frozen
from pfedes.fleet.allow_list import reply_spec
from pfedes.methods import METHODS
from pfedes.methods.base import Received
from pfedes.methods.pfedes import ShareOfZeros, extractor_loss, model_loss
from pfedes.models import build_model
from pfedes.models.extractor import Extractor
from pfedes.population.simulation import Simulation
from running import few, small


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def copied(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def work(
    simulation: Simulation, name: str, download: Payload | None = None, round: int = 1
) -> tuple[Client, Any]:
    """A client's first local round."""
    method, ctx = simulation.method, simulation.context(round)
    client = simulation.population.client(name)
    card = simulation.population.card(name, method.needs)
    if download is None:
        cards = simulation.population.cards(method.needs)
        download = method.download(method.start(cards, ctx), card, ctx)
    with ctx.streams.ambient("client", round=round, client=name):
        method.prepare(client, ctx)
        upload = method.client_round(client, download, ctx)
    return client, upload


# --- costs ---


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("model", ["cnn1", "cnn2", "cnn3", "cnn4", "cnn5"])
@pytest.mark.parametrize("method", ["pfedes", "standalone", "fedavg"])
def test_payloads_have_exactly_the_specified_floats(method: str, model: str, classes: int) -> None:
    expected = {
        "pfedes": 443,
        "standalone": 0,
        "fedavg": sum(p.numel() for p in build_model(model, classes, (3, 32, 32)).parameters()),
    }[method]
    config = small(
        method,
        models__pool=[model],
        data__source=f"synthetic:samples=400,classes={classes}",
        data__limit=0,
        train__batch_size=64,
    )
    simulation = Simulation(config)
    ctx = simulation.context(1)
    cards = simulation.population.cards(simulation.method.needs)
    download = simulation.method.download(simulation.method.start(cards, ctx), cards[0], ctx)
    assert download.floats == expected
    wire = simulation.method.allowed(cards[0], ctx)
    wire.down.check(download)
    _, upload = work(simulation, cards[0].name, download)
    assert Payload(upload.tensors).floats == expected
    wire.up.check(Payload(upload.tensors, upload.meta))


CONV1, EXTRACTOR = 940_800, 442_368
FORWARD = {"cnn1": 4_825_800, "cnn2": 3_385_800, "cnn3": 3_525_800, "cnn4": 3_265_800,
           "cnn5": 2_875_800}  # fmt: skip


@pytest.mark.parametrize("model", FORWARD)
def test_flops_by_hand(model: str) -> None:
    """Per sample: a Standalone step 3F - conv1, phase 1 twice that + G, phase 2 2F + 2.5G."""
    settings = {"models__pool": [model], "train__epochs": 3}
    step = 3 * FORWARD[model] - CONV1
    client, _ = work(Simulation(small("standalone", **settings)), "client-0000")
    assert client.meter.total == 2 * len(client.train) * 3 * step
    phase2 = 2 * FORWARD[model] + 5 * EXTRACTOR // 2
    for augment, enhancements in ((True, 3), (False, 1)):  # images that repeat are enhanced once
        simulation = Simulation(small("pfedes", **settings, train__augment=augment))
        client, _ = work(simulation, "client-0000")
        phase1 = 3 * 2 * step + enhancements * EXTRACTOR
        assert client.meter.total == 2 * len(client.train) * (phase1 + phase2)


# --- pFedES ---


def test_each_phase_trains_one_and_freezes_the_other() -> None:
    simulation = Simulation(small())
    ctx = simulation.context(1)
    client = simulation.population.client("client-0000")
    extractor = Extractor()
    w, theta = copied(client.model.state_dict()), copied(extractor.state_dict())
    common: dict[str, Any] = {"epochs": 1, "ctx": ctx}

    with frozen(extractor):
        fit(
            client,
            {"model": Learner(client.model, 0.01)},
            lambda batch: model_loss(client.model, extractor, batch, 0.5),
            **common,
        )
    assert same(theta, extractor.state_dict())
    assert all(p.grad is None for p in extractor.parameters())
    assert not same(w, client.model.state_dict())

    w = copied(client.model.state_dict())
    for p in client.model.parameters():
        p.grad = None
    with frozen(client.model):
        fit(
            client,
            {"extractor": Learner(extractor, 0.01)},
            lambda batch: extractor_loss(client.model, extractor, batch, ShareOfZeros()),
            **common,
        )
    assert same(w, client.model.state_dict())
    assert all(p.grad is None for p in client.model.parameters())
    assert not same(theta, extractor.state_dict())
    assert all(p.requires_grad for p in (*client.model.parameters(), *extractor.parameters()))


def test_without_weight_on_enhanced_data_it_is_standalone() -> None:
    alone, _ = work(Simulation(small("standalone", train__epochs=2)), "client-0001")
    simulation = Simulation(small(train__epochs=2))
    client = simulation.population.client("client-0001")
    extractor = Extractor()
    with frozen(extractor):
        fit(
            client,
            {"model": Learner(client.model, 0.01)},
            lambda batch: model_loss(client.model, extractor, batch, 0.0),
            epochs=2,
            ctx=simulation.context(1),
        )
    torch.testing.assert_close(
        client.model.state_dict(), alone.model.state_dict(), rtol=0, atol=1e-6
    )


def test_the_loss_by_hand() -> None:
    """One linear model, an extractor that doubles: mu weighs the doubled image."""

    class Double(Extractor):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    from pfedes.core.samples import Batch

    model = nn.Flatten()  # the image is its own logits
    batch = Batch(torch.tensor([[[[0.0]], [[1.0]]]]), torch.tensor([1]))
    raw = torch.log1p(torch.exp(torch.tensor(-1.0)))  # CE of logits (0, 1), label 1
    enhanced = torch.log1p(torch.exp(torch.tensor(-2.0)))
    expected = 0.25 * enhanced + 0.75 * raw
    assert model_loss(model, Double(), batch, 0.25).item() == pytest.approx(expected.item())


def test_accuracy_does_not_depend_on_the_extractor() -> None:
    simulation = Simulation(small())
    client = simulation.population.client("client-0000")
    method, ctx = simulation.method, simulation.context(1)
    theirs = [
        client.score(method.personal(client, Payload(copied(Extractor().state_dict())), ctx))
        for _ in range(2)
    ]
    assert theirs[0] == theirs[1] == client.score(method.personal(client, None, ctx))


def test_share_of_zeros_by_hand() -> None:
    zeros = ShareOfZeros()
    assert zeros.share() == 0.0
    zeros.see(torch.tensor([0.0, 1.0, 0.0, 2.0]))
    zeros.see(torch.tensor([3.0, 4.0, 5.0, 6.0]))
    assert zeros.share() == 0.25


@pytest.mark.parametrize("sharing", ["local", "frozen"])
def test_nothing_travels_without_sharing(sharing: str, tmp_path: Path) -> None:
    config = small(method__sharing=sharing)
    run = Federation(config, out=tmp_path / "run").run()
    assert run.summary["floats_down"] == run.summary["floats_up"] == 0
    simulation = Simulation(config)
    cards = simulation.population.cards(())
    initial = simulation.method.start(cards, simulation.context(0)).tensors
    versions = [
        run.store.clients.load(run.manifest.run, name, 2).state for name in run.manifest.clients
    ]
    kept = [{k: v[f"kept.{k}"] for k in initial} for v in versions]
    assert all(same(own, initial) is (sharing == "frozen") for own in kept)


def test_mu_is_in_its_range() -> None:
    for mu in (0.0, 0.6, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="mu"):
            PFedES(mu=mu)
    assert PFedES(mu=0.5).config.mu == 0.5


# --- all methods ---


@pytest.mark.parametrize("name", ["pfedes", "fedavg", "fml", "lg_fedavg", "fedmrl"])
def test_aggregating_equal_parameters_returns_them(name: str) -> None:
    simulation = Simulation(small(name, models__pool=["cnn5"]))
    method, ctx = simulation.method, simulation.context(1)
    cards = simulation.population.cards(method.needs)
    state = method.start(cards, ctx)
    uploads = [Received(card, Payload(copied(state.tensors))) for card in cards]
    assert same(method.aggregate(state, uploads, ctx).tensors, state.tensors)


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_clients_changes_nothing(name: str) -> None:
    """No optimiser state, random number or anything else passes from client to client."""
    config = few(name)

    def results(names: list[str]) -> dict[str, str]:
        simulation = Simulation(config)
        found = {}
        for client_name in names:
            client, upload = work(simulation, client_name)
            found[client_name] = Payload(client.state()).digest() + Payload(upload.tensors).digest()
        return found

    names = Simulation(config).population.names
    assert results(names) == results(names[::-1])


@pytest.mark.parametrize("name", METHODS)
def test_unselected_clients_do_not_change(name: str, tmp_path: Path) -> None:
    config = few(name, train__participation=0.5, train__rounds=3, runtime__keep_rounds=4)
    run = Federation(config, out=tmp_path / "run").run()
    asked = {(row["round"], row["client"]) for row in run.clients}
    assert len(asked) == 6
    for round in (1, 2, 3):
        before, after = run.store.manifest(round - 1).clients, run.store.manifest(round).clients
        for client in before:
            moved = before[client].digest != after[client].digest
            assert moved is ((round, client) in asked)


@pytest.mark.parametrize("name", METHODS)
def test_kept_momentum_changes_the_second_round_only(name: str, tmp_path: Path) -> None:
    digests = []
    for optimiser in ("fresh", "kept"):
        config = few(name, train__optimiser=optimiser, runtime__keep_rounds=3)
        run = Federation(config, out=tmp_path / optimiser).run()
        states = [
            run.store.clients.load(run.manifest.run, "client-0000", round).state for round in (1, 2)
        ]
        digests.append(
            [Payload({k: v for k, v in s.items() if "momentum" not in k}).digest() for s in states]
        )
        # FedAvg's whole model is overwritten by every download: nothing is left to be kept.
        keeps = optimiser == "kept" and name != "fedavg"
        assert any("momentum" in key for key in states[0]) is keeps
    (fresh1, fresh2), (kept1, kept2) = digests
    assert fresh1 == kept1
    assert (fresh2 == kept2) is (name == "fedavg")


@pytest.mark.parametrize(
    ("name", "overwritten"),
    [
        *(("pfedes", "extractor."), ("fml", "meme."), ("fedkd", "mentee."), ("fedmrl", "small.")),
        *((name, "model.fc3") for name in ("lg_fedavg", "fedssa", "fedgh", "fedre")),
    ],
)
def test_momentum_of_what_a_download_overwrites_is_not_kept(
    name: str, overwritten: str, tmp_path: Path
) -> None:
    config = small(name, models__pool=["cnn5"], train__optimiser="kept", train__rounds=1)
    run = Federation(config, out=tmp_path / "run").run()
    state = run.store.clients.load(run.manifest.run, "client-0000", 1).state
    kept = [key.removeprefix("kept.momentum.") for key in state if "momentum" in key]
    assert any(key.startswith("model.") for key in kept)
    assert not any(key.startswith(overwritten) for key in kept)


def test_fedavg_measures_the_global_model_on_everybody(tmp_path: Path) -> None:
    config = small("fedavg", models__pool=["cnn5"], train__participation=0.5)
    run = Federation(config, out=tmp_path / "run").run()
    states = [run.model(name).state_dict() for name in run.manifest.clients]
    assert all(same(dict(states[0]), dict(state)) for state in states)
    server = run.store.server_state(run.manifest).tensors
    assert same(dict(states[0]), server)
    simulation = Simulation(config)
    for name, standing in run.manifest.clients.items():
        client = simulation.population.client(name)
        assert client.score(run.model(name)) == standing.scores
    last = run.rounds[-1]
    assert last["accuracy_local"] != last["accuracy"]
    assert last["floats_evaluation"] == 4 * 670_058


def test_fedavg_says_what_it_cannot_serve(tmp_path: Path) -> None:
    config = small("fedavg", models__pool=["cnn1", "cnn5"], models__assign="round_robin")
    with pytest.raises(MethodError) as error:
        Federation(config, out=tmp_path / "run").run()
    message = str(error.value)
    assert "client-0001: its model is not cnn1: fc1.weight is [500, 800], expected [2000, 800]" in (
        message
    )
    assert "set models.pool to one architecture" in message
    assert not (tmp_path / "run").exists()


def test_a_reply_may_carry_what_is_listed_and_nothing_else() -> None:
    simulation = Simulation(small())
    card = simulation.population.card("client-0000", ())
    spec = reply_spec(PFedES(), card, simulation.context(1))
    (group,) = spec.groups
    assert group.names() == {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"}
    assert set(spec.meta) == {
        *("run", "round", "base", "samples", "loss", "val_correct", "val_total"),
        *("test_correct", "test_total", "flops", "seconds", "state", "zeros"),
    }
    assert not reply_spec(Standalone(), card, simulation.context(1)).groups
