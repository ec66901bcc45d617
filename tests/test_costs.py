"""FLOPs are torch's own, counted more cheaply."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pfedes.costs import CountedFlops, FlopMeter
from pfedes.models import MODELS, build_model

MODULES = {
    **{name: lambda name=name: build_model(name, 10, (3, 32, 32)) for name in MODELS},
    "normalised": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(7200, 10)
    ),
    "attention": lambda: nn.Sequential(
        nn.Flatten(2), nn.TransformerEncoderLayer(1024, 4, 64, batch_first=True), nn.Flatten()
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_the_same_as_torch_counts(name: str) -> None:
    model, x = MODULES[name](), torch.randn(4, 3, 32, 32)
    with CountedFlops() as ours:
        model(x).sum().backward()
    with FlopCounterMode(display=False) as theirs:
        model(x).sum().backward()
    assert ours.total == theirs.get_total_flops() > 0


def test_a_linear_layer_by_hand() -> None:
    meter = FlopMeter()
    layer, x = nn.Linear(5, 7), torch.randn(3, 5, requires_grad=True)
    meter.count("step", 3, lambda: layer(x).sum().backward())
    assert meter.total == 3 * 2 * 3 * 5 * 7  # forward, gradient of weights, gradient of inputs
    meter.count("step", 6, lambda: None)  # known by now: only multiplied
    assert meter.total == 3 * meter.known["step"] + 6 * meter.known["step"]


def test_counting_does_not_load_the_compiler() -> None:
    program = (
        "import sys, torch; from pfedes.costs import CountedFlops\n"
        "with CountedFlops() as flops: torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()\n"
        "print(flops.total, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["16", "False"]
