"""bf16 in local training: what is computed in it, what is not, and that bits stay equal."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from commands import command
from pfedes import Client, ConfigError, Federation, Upload, configure
from pfedes.config import Config
from pfedes.core.client import Card
from pfedes.core.device import CPU
from pfedes.core.precision import computing, is_native
from pfedes.core.samples import Normaliser, Samples
from pfedes.core.training import fit_labels
from pfedes.fleet.dask.compatibility import canary
from pfedes.methods import METHODS
from pfedes.methods._distillation import kl_from
from pfedes.methods.pfedes import PFedES
from pfedes.models import precision_speed
from pfedes.models.convolution import ImageConv2d
from pfedes.models.precision_speed import measured_speed_up, warn_if_slow
from pfedes.population.simulation import Simulation
from pfedes.report.page import render
from running import result, small


def halved(method: str = "pfedes", **settings: Any) -> Config:
    return small(method, train__precision="bf16", **settings)


def test_products_are_bf16_in_training_and_nowhere_else() -> None:
    simulation = Simulation(halved("standalone", models__pool=["cnn5"]))
    client, seen = simulation.population.client("client-0000"), []
    client.model.register_forward_hook(lambda module, _, out: seen.append((module.training, out)))
    fit_labels(client, simulation.context(1))
    client.score(client.model)
    assert {(training, out.dtype) for training, out in seen} == {
        (True, torch.bfloat16),
        (False, torch.float32),
    }
    assert {p.dtype for p in client.model.parameters()} == {torch.float32}


def worked(config: Config) -> tuple[Client, Upload]:
    """A client's first local round."""
    simulation = Simulation(config)
    method, ctx = simulation.method, simulation.context(1)
    cards = simulation.population.cards(method.needs)
    client = simulation.population.client("client-0000")
    method.prepare(client, ctx)
    download = method.download(method.start(cards, ctx), cards[0], ctx)
    return client, method.client_round(client, download, ctx)


FEW: dict[str, Any] = {"models__pool": ["cnn5"], "data__limit": 80}


@pytest.mark.parametrize("name", METHODS)
def test_what_lasts_and_what_travels_is_float32(name: str) -> None:
    client, upload = worked(halved(name, train__optimiser="kept", **FEW))
    assert name == "fedavg" or "momentum.model.fc1.weight" in client.kept
    tensors = {**client.state(), **upload.tensors}
    floating = [tensor for tensor in tensors.values() if tensor.is_floating_point()]
    assert {tensor.dtype for tensor in floating} == {torch.float32}


@pytest.mark.parametrize("name", METHODS)
def test_the_cost_is_the_same(name: str) -> None:
    """A product of narrower numbers is a product."""
    (ours, _), (usual, _) = worked(halved(name, **FEW)), worked(small(name, **FEW))
    assert ours.meter.total == usual.meter.total > 0


@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "padding", "height"),
    [(3, 16, 5, 0, 32), (8, 3, 3, 1, 32), (8, 3, 3, 0, 34), (8, 3, 3, 1, 30)],
)
def test_convolutions_of_images_are_those_of_autocast(
    inputs: int, outputs: int, kernel: int, padding: int, height: int
) -> None:
    """Within a rounding or two of torch's own, whose order of additions is another."""
    torch.manual_seed(0)
    ours = ImageConv2d(inputs, outputs, kernel, padding=padding)
    plain = nn.Conv2d(inputs, outputs, kernel, padding=padding)
    plain.load_state_dict(ours.state_dict())
    x, found = torch.randn(5, inputs, height, 20), []
    for layer in (ours, plain):
        image = x.clone(memory_format=torch.channels_last).requires_grad_()
        with FlopCounterMode(display=False) as counter:
            with computing("bf16", CPU):
                made = layer(image)
            made.float().sin().sum().backward()
        assert made.dtype == torch.bfloat16
        assert layer.bias is not None
        grads = image.grad, layer.weight.grad, layer.bias.grad
        assert {grad.dtype for grad in grads if grad is not None} == {torch.float32}
        found.append((made, *grads, counter.get_total_flops()))
    *tensors, flops = zip(*found, strict=True)
    for mine, theirs in tensors:
        scale = theirs.float().abs().max().item()
        torch.testing.assert_close(
            mine.float(), theirs.float(), rtol=0.02, atol=0.01 * scale, check_stride=False
        )
    assert flops[0] == flops[1]


def test_a_step_is_near_that_of_float32() -> None:
    """One step from the same weights goes in the same direction."""
    moved = {}
    for kind in ("float32", "bf16"):
        simulation = Simulation(
            small("standalone", train__precision=kind, train__weight_decay=0, models__pool=["cnn5"])
        )
        client = simulation.population.client("client-0000")
        before = torch.cat([p.detach().flatten().clone() for p in client.model.parameters()])
        fit_labels(client, simulation.context(1))
        after = torch.cat([p.detach().flatten() for p in client.model.parameters()])
        moved[kind] = after - before
    assert not torch.equal(moved["float32"], moved["bf16"])
    assert F.cosine_similarity(moved["float32"], moved["bf16"], dim=0) > 0.99


def test_divergence_is_computed_in_float32() -> None:
    """Two answers that differ by a few roundings: in bf16 hardly a digit would be right."""
    torch.manual_seed(0)
    teacher = torch.randn(32, 10).bfloat16()
    student = (teacher.float() + 0.02 * torch.randn(32, 10)).bfloat16()
    expected = F.kl_div(
        student.double().log_softmax(1),
        teacher.double().log_softmax(1),
        reduction="batchmean",
        log_target=True,
    )
    with computing("bf16", CPU):
        assert kl_from(teacher, student).item() == pytest.approx(expected.item(), rel=1e-3)


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 30 * 30, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.norm(self.conv(x)).flatten(1))
        return logits


@pytest.mark.parametrize("count", [17, 16])  # the last batch of 17 has one sample
def test_batch_normalisation_keeps_float32_statistics(count: int) -> None:
    simulation = Simulation(halved())
    ctx, method = simulation.context(1), PFedES(extractor_epochs=1)
    torch.manual_seed(0)
    samples = Samples(
        torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8),
        torch.arange(count) % 10,
        Normaliser.of([0.5] * 3, [0.25] * 3),
    )
    client = Client("a", "own", Normalised(), samples, samples, samples)
    state = method.start([Card("a", count, (3, 32, 32))], ctx)
    method.client_round(client, state, ctx)
    norm = client.model.norm
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_mean.dtype == torch.float32
    assert norm.running_mean.abs().sum() > 0


@pytest.mark.parametrize("method", ["pfedes", pytest.param("fml", marks=pytest.mark.repeat)])
def test_bits_are_equal_in_serial_in_workers_and_resumed(method: str, tmp_path: Path) -> None:
    """Worker processes take the time: one for an interrupted run, one for its rest."""
    serial = Federation(halved(method), out=tmp_path / "serial").run()
    workers = halved(method, runtime__fleet="workers", runtime__workers=1)
    Federation(workers.model_copy(
        update={"train": workers.train.model_copy(update={"rounds": 1})}
    ), out=tmp_path / "resumed").run()  # fmt: skip
    resumed = Federation.resume(tmp_path / "resumed", rounds=2).run()
    assert result(resumed) == result(serial)
    other = Federation(small(method), out=tmp_path / "float32").run()
    assert result(other)["versions"] != result(serial)["versions"]


def test_it_identifies_a_run_and_is_shown(tmp_path: Path) -> None:
    before, after = small(), halved()
    assert before.local_digest() != after.local_digest()
    assert before.result_digest() != after.result_digest()
    run = Federation(after, out=tmp_path / "run").run()
    assert json.loads((run.directory / "summary.json").read_text())["precision"] == "bf16"
    assert ">bf16<" in render(run).replace(" ", "").replace("\n", "")
    float32 = Federation(before, out=tmp_path / "float32").run()
    assert "precision" not in float32.summary


def test_the_option_sets_it_and_refuses_others(tmp_path: Path) -> None:
    assert configure(precision="bf16").train.precision == "bf16"
    done = command("run", "--precision", "fp8", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "train.precision" in done.stderr
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"train\.precision"):
        configure(precision="half")


def test_nodes_are_tried_in_the_precision_of_the_run() -> None:
    assert canary("cpu", 1, "bf16") == canary("cpu", 1, "bf16")
    assert canary("cpu", 1, "bf16") != canary("cpu", 1)


@pytest.mark.parametrize("native", [True, False])
def test_a_processor_without_bf16_is_warned_of_once(
    native: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(precision_speed, "is_native", lambda _: native)
    monkeypatch.setattr(precision_speed, "measured_speed_up", lambda _: 0.4)
    Federation(halved("standalone", train__rounds=1), out=tmp_path / "run").run()
    said = [record.message for record in caplog.records if "no instructions" in record.message]
    assert len(said) == (0 if native else 1)
    assert all("0.40 times as fast" in line and "'float32' is faster" in line for line in said)
    caplog.clear()
    warn_if_slow(["float32"], CPU)
    assert not caplog.records


def test_what_a_processor_can_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False})
    assert not is_native(CPU)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    assert is_native(CPU)
    assert measured_speed_up(CPU) > 0


def test_a_participant_chooses_for_itself() -> None:
    """What its own file says wins over the federation's, in either direction."""
    people = [
        {"name": name, "model": "tiny:dense", "data": f"tiny:{name}_images", "precision": chosen}
        for name, chosen in (("ada", "bf16"), ("ben", ""))
    ]
    settings = {
        "federation.classes": ["zero", "one", "two", "three"],
        "federation.channels": 1,
        "runtime.fleet": "serial",
        "participants": people,
    }
    config = configure(settings=settings)
    assert config.precisions == ("bf16", "float32")
    plain = configure(
        settings={**settings, "participants": [{**p, "precision": ""} for p in people]}
    )
    assert config.local_digest() != plain.local_digest()
    simulation = Simulation(config)
    for name, expected in (("ada", torch.bfloat16), ("ben", torch.float32)):
        client = simulation.population.client(name)
        seen: set[torch.dtype] = set()
        client.model.register_forward_hook(lambda _, __, out, seen=seen: seen.add(out.dtype))
        fit_labels(client, simulation.context(1))
        assert seen == {expected}
