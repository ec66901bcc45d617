"""FLOPs are torch's own, counted more cheaply; what torch does not count is, or is named."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from pfedes.core.flops import CountedFlops, FlopMeter
from pfedes.models import MODELS, build_model

MODULES: dict[str, Callable[[], nn.Module]] = {
    **{name: partial(build_model, name, 10, (3, 32, 32)) for name in MODELS},
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
    assert not ours.uncounted


def test_a_linear_layer_by_hand() -> None:
    meter = FlopMeter()
    layer, x = nn.Linear(5, 7), torch.randn(3, 5, requires_grad=True)
    meter.count("step", 3, lambda: layer(x).sum().backward())
    assert meter.total == 3 * 2 * 3 * 5 * 7  # forward, gradient of weights, gradient of inputs
    meter.count("step", 6, lambda: None)  # known by now: only multiplied
    assert meter.total == 3 * meter.known["step"] + 6 * meter.known["step"]


def counted(work: Callable[[], object]) -> int:
    with CountedFlops() as flops:
        work()
    assert not flops.uncounted
    total: int = flops.total
    return total


def test_attention_by_hand() -> None:
    q = torch.randn(1, 2, 3, 4, requires_grad=True)  # two heads, three queries of four numbers
    k, v = (torch.randn(1, 2, 5, 4, requires_grad=True) for _ in range(2))
    product = 2 * 2 * 3 * 5 * 4  # multiply-adds of every head, query, key and number
    attend = F.scaled_dot_product_attention
    assert counted(lambda: attend(q, k, v)) == 2 * product  # scores, then the mean of values
    # Scores once more, then the gradients of values, scores, queries and keys.
    assert counted(lambda: attend(q, k, v).sum().backward()) == (2 + 5) * product


def test_transformers_by_hand_on_the_short_and_the_long_way() -> None:
    x = torch.randn(2, 3, 4)  # two sequences of three, width 4
    attention = nn.MultiheadAttention(4, 2, batch_first=True).eval()
    layer = nn.TransformerEncoderLayer(4, 2, 7, batch_first=True).eval()
    projections, scores = 4 * (2 * 2 * 3 * 4 * 4), 2 * (2 * 2 * 3 * 3 * 4)
    linear = 2 * (2 * 2 * 3 * 4 * 7)
    for grad in (True, False):  # without gradients torch does all of it in one operation
        with torch.set_grad_enabled(grad):
            assert counted(lambda: attention(x, x, x)) == projections + scores
            assert counted(lambda: layer(x)) == projections + scores + linear


def test_recurrent_networks_by_hand() -> None:
    x = torch.randn(2, 3, 4, requires_grad=True)  # two sequences of three steps, width 4
    lstm = nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True)
    first, second = 4 * 5 * (4 + 5), 4 * 5 * (5 + 5 + 5)  # gates x units x (inputs + state)
    forward = 2 * 6 * 2 * (first + second)  # multiply-adds of both directions
    assert counted(lambda: lstm(x)) == forward
    assert counted(lambda: lstm(x)[0].sum().backward()) == 3 * forward
    gru = nn.GRU(4, 5, batch_first=True)
    assert counted(lambda: gru(x)) == 2 * 6 * 3 * 5 * (4 + 5)


def test_a_product_with_a_vector_by_hand() -> None:
    assert counted(lambda: torch.ones(2, 3, 4) @ torch.ones(4)) == 2 * 2 * 3 * 4
    assert counted(lambda: torch.ones(4) @ torch.ones(4)) == 2 * 4


def test_an_optimisers_step_hides_nothing() -> None:
    layer = nn.Linear(2, 2)
    optimiser = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9, fused=True)

    def step() -> None:
        layer(torch.ones(1, 2)).sum().backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
        optimiser.step()

    assert counted(step) == 2 * (2 * 2 * 2)


def test_what_cannot_be_counted_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    bilinear, x = nn.Bilinear(2, 2, 2), torch.ones(1, 2)
    for kind in ("one", "another"):
        FlopMeter().count(kind, 1, lambda: bilinear(x, x))
    assert caplog.messages == ["FLOPs are too low: there is no formula for aten._trilinear.default"]


def test_a_formula_that_fails_ends_no_training() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 7, batch_first=True), 1).eval()
    padding = torch.tensor([[False, False, True], [False, False, False]])
    with (
        warnings.catch_warnings(action="ignore"),  # torch calls nested tensors a prototype
        torch.no_grad(),
        CountedFlops() as flops,
    ):
        encoder(torch.randn(2, 3, 4), src_key_padding_mask=padding)
    assert flops.uncounted == {"aten._transformer_encoder_layer_fwd.default"}


def test_counting_does_not_load_the_compiler() -> None:
    program = (
        "import sys, torch; from pfedes.core.flops import CountedFlops\n"
        "with CountedFlops() as flops: torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()\n"
        "print(flops.total, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["16", "False"]
