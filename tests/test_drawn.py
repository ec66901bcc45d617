"""pFedES with one pass instead of two, with part of the samples, and predictions by both views."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pfedes import ConfigError, Federation, ModelError, configure, open_run
from pfedes.config import Config
from pfedes.core.samples import Batch
from pfedes.export.model_files import export_model
from pfedes.methods.pfedes import PFedES, drawn_loss, model_loss
from pfedes.models.extractor import Extractor, Residual
from pfedes.models.views import BothViews
from pfedes.population.simulation import Simulation
from running import result, small

DRAWS = 4000


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def a_batch(samples: int = 6) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return Batch(torch.randn(samples, 3, 4, 4, generator=generator), torch.arange(samples) % 3)


def model(*, normalised: bool) -> nn.Module:
    torch.manual_seed(2)
    norm: list[nn.Module] = [nn.BatchNorm2d(3)] if normalised else []
    return nn.Sequential(*norm, nn.Flatten(), nn.Linear(48, 3)).train()


def gradient(of: nn.Module, loss: torch.Tensor) -> torch.Tensor:
    grads = torch.autograd.grad(loss, list(of.parameters()))
    return torch.cat([grad.flatten() for grad in grads])


@pytest.mark.parametrize("normalised", [False, True])
def test_the_mean_of_many_draws_is_the_loss_of_two_passes(normalised: bool) -> None:
    """Of loss and gradient, with batch normalisation too; within four standard errors."""
    net, extractor, batch = model(normalised=normalised), Extractor(), a_batch()
    draw = torch.Generator().manual_seed(3)
    losses, gradients = [], []
    for _ in range(DRAWS):
        loss = drawn_loss(net, extractor, batch, 0.3, draw)
        losses.append(loss.detach())
        gradients.append(gradient(net, loss))
    expected = model_loss(net, extractor, batch, 0.3)
    for found, wanted in (
        (torch.stack(losses)[:, None], expected.detach()[None]),
        (torch.stack(gradients), gradient(net, expected)),
    ):
        error = found.std(0) / DRAWS**0.5
        assert ((found.mean(0) - wanted).abs() <= 4 * error + 1e-6).all()
        assert error.max() > 0  # the draws do differ


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_in_the_limits_all_samples_are_raw_or_enhanced(mu: float, normalised: bool) -> None:
    net, extractor, batch = model(normalised=normalised), Extractor(), a_batch()
    expected = model_loss(copy.deepcopy(net), extractor, batch, mu)
    found = drawn_loss(net, extractor, batch, mu, torch.Generator())
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_statistics_learn_from_raw_batches_only() -> None:
    raw, enhanced = model(normalised=True), model(normalised=True)
    before = enhanced.get_buffer("0.running_mean").clone()
    drawn_loss(enhanced, Extractor(), a_batch(), 1.0, torch.Generator())
    assert torch.equal(enhanced.get_buffer("0.running_mean"), before)
    drawn_loss(raw, Extractor(), a_batch(), 0.0, torch.Generator())
    assert not torch.equal(raw.get_buffer("0.running_mean"), before)


def test_samples_of_a_batch_are_drawn_one_by_one() -> None:
    seen = []
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    net.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))

    class Zeros(Extractor):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(x)

    drawn_loss(net, Zeros(), a_batch(1000), 0.3, torch.Generator().manual_seed(0))
    enhanced = (seen[0].flatten(1) == 0).all(1).sum().item()
    assert 240 < enhanced < 360  # 300 are expected, give or take four standard deviations


def test_it_costs_one_pass() -> None:
    """A round of E = 5 with one extractor epoch takes at most 1.5 times Standalone's."""
    flops = {}
    variants: dict[str, dict[str, Any]] = {
        "standalone": {},
        "both": {},
        "drawn": {"method__phase1": "drawn"},
        "drawn, augmented": {"method__phase1": "drawn", "train__augment": True},
    }
    for name, settings in variants.items():
        method = "standalone" if name == "standalone" else "pfedes"
        flops[name] = work(small(method, train__epochs=5, models__pool=["cnn1"], **settings))[1]
    assert flops["drawn"] <= 1.5 * flops["standalone"]
    assert flops["drawn, augmented"] <= 1.5 * flops["standalone"]
    assert flops["both"] > 2 * flops["standalone"]


def work(config: Config) -> tuple[dict[str, Any], int]:
    """A client's first round: its state, with what it sends, and its FLOPs."""
    simulation = Simulation(config)
    method, ctx = simulation.method, simulation.context(1)
    cards = simulation.population.cards(method.needs)
    client = simulation.population.client("client-0000")
    with ctx.streams.ambient("client", round=1, client=client.name):
        download = method.download(method.start(cards, ctx), cards[0], ctx)
        upload = method.client_round(client, download, ctx)
    state = {name: tensor.clone() for name, tensor in client.state().items()}
    return {**state, **upload.tensors}, client.meter.total


def test_draws_have_a_stream_of_their_own() -> None:
    """They repeat, and leave the order of batches and everything else random alone."""
    first, second = (work(small(method__phase1="drawn", train__augment=True))[0] for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    orders = []
    for kind in ("both", "drawn"):
        simulation = Simulation(small(method__phase1=kind))
        ctx = simulation.context(1)
        client = simulation.population.client("client-0000")
        labels: list[int] = []
        client.train.batch = recording(client.train.batch, labels)  # type: ignore[method-assign]  # of this client alone
        cards = simulation.population.cards(())
        state = simulation.method.start(cards, ctx)
        simulation.method.client_round(
            client, simulation.method.download(state, cards[0], ctx), ctx
        )
        orders.append(labels)
    assert orders[0] == orders[1]


def recording(batch: Any, labels: list[int]) -> Any:
    def recorded(*arguments: Any) -> Batch:
        made: Batch = batch(*arguments)
        labels.extend(made.y.tolist())
        return made

    return recorded


def test_bits_are_equal_in_serial_and_in_workers(tmp_path: Path) -> None:
    """A worker process takes the time."""
    settings: dict[str, Any] = {
        "method__phase1": "drawn",
        "method__extractor_share": 0.5,
        "method__inference": "both",
        "method__residual": True,
    }
    serial = Federation(small(**settings), out=tmp_path / "serial").run()
    workers = small(**settings, runtime__fleet="workers", runtime__workers=1)
    assert result(Federation(workers, out=tmp_path / "workers").run()) == result(serial)


def test_an_extractors_epoch_may_see_part_of_the_samples() -> None:
    whole, half = work(small())[1], work(small(method__extractor_share=0.5))[1]
    simulation = Simulation(small(method__sharing="frozen"))
    method, ctx = simulation.method, simulation.context(1)
    client = simulation.population.client("client-0000")
    method.prepare(client, ctx)
    method.client_round(client, method.start(simulation.population.cards(()), ctx), ctx)
    phase1, samples = client.meter.total, len(client.train)
    seen = round(0.5 * samples)
    assert (half - phase1) * samples == pytest.approx((whole - phase1) * seen, rel=1e-9)


@pytest.mark.parametrize("share", [0, 1.5])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(ConfigError, match="extractor_share"):
        configure(settings={"method.extractor_share": share})


# --- both views ---


def test_both_views_by_hand() -> None:
    """Probabilities (1/2, 1/2) raw and (4/5, 1/5) enhanced: their mean is (13/20, 7/20)."""

    class Shift(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.tensor([4.0, 1.0]).log()

    views = BothViews(nn.Identity(), Shift())
    chances = views(torch.zeros(1, 2)).softmax(1)
    assert chances[0].tolist() == pytest.approx([0.65, 0.35])


@pytest.mark.parametrize("sharing", ["global", "local", "frozen"])
def test_prediction_follows_and_training_does_not_change(sharing: str, tmp_path: Path) -> None:
    both = Federation(
        small(method__inference="both", method__sharing=sharing), out=tmp_path / "both"
    ).run()
    raw = Federation(small(method__sharing=sharing), out=tmp_path / "raw").run()
    name = "client-0001"
    ours, theirs = open_run(both.directory).model(name), open_run(raw.directory).model(name)
    assert isinstance(ours, BothViews)
    for key, tensor in theirs.state_dict().items():
        assert torch.equal(ours.model.state_dict()[key], tensor)
    if sharing == "global":
        server = both.store.server_state(both.manifest).tensors
        assert server.keys() == ours.extractor.state_dict().keys()
        assert both.store.server_state(both.manifest).digest() == (
            raw.store.server_state(raw.manifest).digest()
        )
    client, _ = open_run(both.directory).client(name)
    assert client.score(ours) == both.manifest.clients[name].scores
    personal = open_run(both.directory).personal(name)
    pixels = torch.zeros(1, 32, 32, 3, dtype=torch.uint8)
    x = personal.prepare(pixels)
    with torch.no_grad():
        expected = (
            theirs.eval()(x).softmax(1) + theirs(ours.extractor(x)).softmax(1)
        ) / 2  # the plain run's model, the extractor that the client kept
    torch.testing.assert_close(personal.probabilities(pixels), expected)
    with pytest.raises(ModelError, match=r"method\.inference = 'both'"):
        export_model(personal, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


# --- a residual extractor ---


def test_a_residual_extractor_adds() -> None:
    extractor, x = Extractor(), torch.randn(2, 3, 8, 8)
    assert torch.equal(Residual(extractor)(x), x + extractor(x))
    simulation = Simulation(small(method__residual=True))
    assert isinstance(simulation.method, PFedES)
    made = simulation.method.extractors.new((3, 32, 32))
    assert isinstance(made, Residual)
    assert sum(p.numel() for p in made.parameters()) == 443


def test_the_neutral_values_are_the_paper() -> None:
    assert (
        small().local_digest()
        == small(
            method__phase1="both",
            method__extractor_share=1.0,
            method__inference="raw",
            method__residual=False,
        ).local_digest()
    )
