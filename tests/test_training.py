"""What the training loop does with normalisation, dropout, and images that repeat."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from pfedes import Client
from pfedes.core.samples import Normaliser, Samples
from pfedes.core.training import fit_labels, frozen, mixes_samples, statistics_resting
from pfedes.methods import pfedes
from pfedes.methods.pfedes import ShareOfZeros, enhanced_once, extractor_loss, model_loss
from pfedes.models import build_model
from pfedes.models.extractor import Extractor
from pfedes.population.simulation import Simulation
from running import small


def buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.named_buffers()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class Normalised(nn.Module):
    """A model with batch normalisation, for which raw and enhanced batches must stay apart."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3 * 32 * 32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.norm(x).flatten(1))
        return logits


def test_batch_normalisation_learns_from_raw_images_only() -> None:
    torch.manual_seed(0)
    simulation = Simulation(small())
    batch = simulation.population.client("client-0000").train.batch(slice(0, 16))
    model, alone, extractor = Normalised().train(), Normalised().train(), Extractor()
    alone.load_state_dict(model.state_dict())
    assert mixes_samples(model)
    assert not mixes_samples(build_model("cnn5", 10, (3, 32, 32)))

    loss = model_loss(model, extractor, batch, 0.25)
    raw = nn.functional.cross_entropy(alone(batch.x), batch.y)
    assert same(dict(model.norm.named_buffers()), dict(alone.norm.named_buffers()))
    with statistics_resting(alone), torch.no_grad():
        enhanced = nn.functional.cross_entropy(alone(extractor(batch.x)), batch.y)
    assert loss.item() == pytest.approx((0.25 * enhanced + 0.75 * raw).item(), rel=1e-6)

    before = buffers(model.norm)
    with frozen(model):
        extractor_loss(model, extractor, batch, ShareOfZeros()).backward()
    assert same(before, buffers(model.norm))
    assert extractor.conv1.weight.grad is not None


def test_statistics_of_instance_normalisation_learn_from_raw_images_only() -> None:
    torch.manual_seed(0)
    batch = Simulation(small()).population.client("client-0000").train.batch(slice(0, 16))

    def model() -> nn.Module:
        torch.manual_seed(1)
        norm = nn.InstanceNorm2d(3, track_running_stats=True)
        return nn.Sequential(norm, nn.Flatten(), nn.Linear(3 * 32 * 32, 10))

    ours, alone = model(), model()
    assert mixes_samples(ours)
    model_loss(ours, Extractor(), batch, 0.25)
    alone(batch.x)
    assert same(buffers(ours), buffers(alone))


@pytest.mark.parametrize(
    "norm", [nn.GroupNorm(1, 3), nn.InstanceNorm2d(3), nn.LayerNorm([3, 32, 32]), nn.Dropout()]
)
def test_what_treats_samples_one_by_one_may_be_joined(norm: nn.Module) -> None:
    assert not mixes_samples(nn.Sequential(norm, nn.Flatten()))


def tiny(samples: int, model: nn.Module) -> Client:
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (samples, 8, 8, 3), dtype=torch.uint8)
    labels = torch.arange(samples) % 10
    train = Samples(pixels, labels, Normaliser.of([0.5] * 3, [0.25] * 3))
    return Client("client-0000", "mine", model, train, train, train)


@pytest.mark.parametrize("samples", [1, 17])
def test_a_batch_of_one_is_normalised_by_running_statistics(samples: int) -> None:
    """With one number per channel, torch refuses to normalise it by itself."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.BatchNorm1d(16), nn.Linear(16, 10))
    client = tiny(samples, model)
    before = [p.clone() for p in model.parameters()]
    loss = fit_labels(client, Simulation(small(train__batch_size=16)).context(1))
    assert loss > 0
    assert all(
        not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)
    )
    assert int(model.get_buffer("2.num_batches_tracked")) == samples // 16
    assert model[2].training


def test_dropout_is_drawn_for_raw_and_for_enhanced_images_and_is_off_in_phase_2() -> None:
    seen: list[torch.Tensor] = []
    drop = nn.Dropout(0.5)
    drop.register_forward_hook(lambda *call: seen.append(call[-1]))
    model = nn.Sequential(drop, nn.Flatten(), nn.Linear(192, 10))
    batch = tiny(8, model).train.batch(slice(None))
    extractor = Extractor()
    model_loss(model, extractor, batch, 0.5)
    enhanced, raw = seen.pop().chunk(2)
    fallen = raw == 0
    assert 0.4 < fallen.float().mean() < 0.6
    assert not torch.equal(fallen, (enhanced == 0) & (extractor(batch.x) != 0))
    with frozen(model):
        extractor_loss(model, extractor, batch, ShareOfZeros())
    assert torch.equal(seen.pop(), extractor(batch.x))


@pytest.fixture
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_one_thread")
def test_enhancing_once_changes_not_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(small(train__epochs=2))
    ctx = simulation.context(1)
    cards = simulation.population.cards(())
    download = simulation.method.download(simulation.method.start(cards, ctx), cards[0], ctx)
    states = []
    for limit in (pfedes.REMEMBERED_BYTES, 0):
        monkeypatch.setattr(pfedes, "REMEMBERED_BYTES", limit)
        client = simulation.population.client("client-0000")
        assert (enhanced_once(client, Extractor(), ctx) is None) is (limit == 0)
        simulation.method.client_round(client, download, ctx)
        states.append(dict(client.model.state_dict()))
    assert same(*states)


@pytest.mark.parametrize("settings", [{"train__augment": True}, {"train__epochs": 1}])
def test_images_that_do_not_repeat_are_not_remembered(settings: dict[str, Any]) -> None:
    simulation = Simulation(small(**{"train__epochs": 2, **settings}))
    client = simulation.population.client("client-0000")
    assert enhanced_once(client, Extractor(), simulation.context(1)) is None


def test_gradients_are_clipped_as_torch_clips_them() -> None:
    """One step without momentum or decay moves the weights by the clipped gradient."""
    moved = {}
    for clip in (0.0, 0.5, 50.0):
        model = nn.Sequential(nn.Flatten(), nn.Linear(192, 10))
        nn.init.constant_(model.get_parameter("1.weight"), 0.01)
        nn.init.zeros_(model.get_parameter("1.bias"))
        client = tiny(16, model)
        settings = {"train__clip": clip, "train__momentum": 0.0, "train__weight_decay": 0.0,
                    "train__batch_size": 16, "train__epochs": 1, "train__lr": 1.0}  # fmt: skip
        before = [p.detach().clone() for p in model.parameters()]
        fit_labels(client, Simulation(small("standalone", **settings)).context(1))
        moved[clip] = torch.cat(
            [(p - q).flatten() for p, q in zip(before, model.parameters(), strict=True)]
        ).detach()
    assert moved[0.0].norm() > 0.5
    assert torch.equal(moved[50.0], moved[0.0])
    torch.testing.assert_close(moved[0.5], moved[0.0] * 0.5 / moved[0.0].norm())
