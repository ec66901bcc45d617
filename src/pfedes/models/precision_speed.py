"""How fast this processor is in bf16, measured, where it has no instructions for it."""

import logging
import statistics
import time
from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes.core.precision import Precision, computing, is_native
from pfedes.models import build_model, channels_last

log = logging.getLogger(__name__)

BATCH, TURNS = 64, 5  # of the steps that are timed


def warn_if_slow(precisions: Collection[Precision], device: torch.device) -> None:
    """Says in one line what bf16 brings on a device that has no instructions for it."""
    if "bf16" not in precisions or is_native(device):
        return
    ratio = measured_speed_up(device)
    log.warning(
        "this processor has no instructions for bf16: a training step of CNN-5 is %.2f times as "
        "fast as in float32 (measured just now)%s",
        ratio,
        "; train.precision = 'float32' is faster" if ratio < 1 else "",
    )


def measured_speed_up(device: torch.device) -> float:
    """How many times faster a step of CNN-5 is in bf16 here; takes a fraction of a second."""
    with torch.random.fork_rng(devices=[]):  # the caller's generator stays as it was
        model = channels_last(build_model("cnn5", 10, (3, 32, 32))).to(device)
        x = torch.randn(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last).to(device)
    y = torch.arange(BATCH, device=device) % 10
    kinds: tuple[Precision, ...] = ("float32", "bf16")
    seconds: dict[Precision, list[float]] = {kind: [] for kind in kinds}
    for turn in range(TURNS + 1):
        for kind in kinds:  # in turns: a busy machine slows both alike
            spent = _seconds_of_step(model, x, y, kind)
            if turn:  # the first one warms up
                seconds[kind].append(spent)
    return statistics.median(seconds["float32"]) / statistics.median(seconds["bf16"])


def _seconds_of_step(model: nn.Module, x: Tensor, y: Tensor, kind: Precision) -> float:
    model.zero_grad()
    began = time.perf_counter()
    with computing(kind, x.device):
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    loss.item()  # a device of its own answers when it is done
    return time.perf_counter() - began
