"""Training elsewhere than on the CPU, where no GPU is: places are checked, not numbers.

Tensors on torch's meta device have a shape and no numbers, and torch refuses to mix them with
others as it does with those of a GPU.
"""

from typing import Any

import pytest
import torch

from pfedes import ConfigError, Payload
from pfedes.cli import execute
from pfedes.core.device import device_of
from pfedes.core.measures import Tally
from pfedes.methods import METHODS
from pfedes.population.simulation import Simulation
from running import small

META = torch.device("meta")


def test_the_cpu_is_always_there() -> None:
    assert device_of("cpu") == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
def test_a_device_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert device_of("auto").type in {"cpu", "mps"}
    with pytest.raises(ConfigError, match="torch finds no such device here"):
        Simulation(small(runtime__device="cuda"))
    assert execute(["run", "--device", "cuda"]) == 2
    assert "runtime.device = 'cuda': torch finds no such device here" in capsys.readouterr().err


def _plain_sgd(parameters: Any, fused: bool, **rates: Any) -> torch.optim.SGD:
    """Without the fused form, which is for devices that compute."""
    return torch.optim.SGD(parameters, **rates)


@pytest.fixture
def _numbers_for_the_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where numbers come back to the CPU, any will do."""
    monkeypatch.setattr(torch.Tensor, "item", lambda self: 1.0)
    monkeypatch.setattr(torch.Tensor, "__int__", lambda self: 1)
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda self: False)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: torch.zeros_like(self, device="cpu"))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda self: [0] * len(self))
    monkeypatch.setattr("pfedes.core.training.SGD", _plain_sgd)
    monkeypatch.setattr(
        "pfedes.core.client.tally_of", lambda labels, *_: Tally(((0, 0, len(labels)),))
    )


@pytest.mark.usefixtures("_numbers_for_the_asking")
@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_everything_of_a_client_is_on_one_device(
    name: str, augment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pfedes.population.simulation.device_of", lambda wanted: META)
    settings: dict[str, Any] = {"models__pool": ["cnn5"], "train__augment": augment}
    simulation = Simulation(small(name, **settings, train__epochs=2))
    method, ctx = simulation.method, simulation.context(1)
    cards = simulation.population.cards(method.needs)
    client = simulation.population.client("client-0000")
    method.prepare(client, ctx)
    client.load({name: tensor.to(META) for name, tensor in client.state().items()})
    sent = method.download(method.start(cards, ctx), cards[0], ctx)
    down = Payload({name: tensor.to(META) for name, tensor in sent.tensors.items()}, sent.meta)
    upload = method.client_round(client, down, ctx)
    assert upload.loss == 1.0
    assert {tensor.device for tensor in client.state().values()} == {META}
    client.score(method.personal(client, None, ctx))


def test_devices_are_not_mixed_unnoticed() -> None:
    """The test above can fail."""
    with pytest.raises(RuntimeError, match="device"):
        torch.zeros(2, device=META) + torch.zeros(2)
