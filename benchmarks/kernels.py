"""How near training comes to the machine's limit, for every CNN.

A step's floating-point operations in the time it takes, clipping and SGD's update included, as a
share of what a plain matrix multiplication of a good size reaches on one thread. The time is the
processor's.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from pfedes.core.device import CPU
from pfedes.core.flops import CountedFlops
from pfedes.core.precision import Precision, computing
from pfedes.core.samples import Batch
from pfedes.core.training import clip_gradients, frozen
from pfedes.fleet.process import keep_freed_memory
from pfedes.methods.pfedes import ShareOfZeros, extractor_loss, model_loss
from pfedes.models import MODELS, build_model, channels_last
from pfedes.models.extractor import Extractor

BATCH = 512
REPETITIONS = 11
SIDE = 2048  # of the matrices
PHASES = ("standalone", "phase 1", "phase 2")


def shares(batch: int = BATCH, repetitions: int = REPETITIONS) -> list[dict[str, Any]]:
    """One row per model and phase, and one for both phases of pFedES together."""
    torch.set_num_threads(1)
    keep_freed_memory()
    rows = []
    for model in MODELS:
        steps = steps_of(model, batch)
        flops = {name: _flops(step) for name, step in steps.items()}
        seconds = medians({"peak": _multiplication(), **steps}, repetitions)
        flops["both phases"] = flops["phase 1"] + flops["phase 2"]
        seconds["both phases"] = seconds["phase 1"] + seconds["phase 2"]
        peak = 2 * SIDE**3 / seconds["peak"]
        rows += [
            {
                "model": model,
                "work": work,
                "milliseconds": 1e3 * seconds[work],
                "GFLOP/s": flops[work] / seconds[work] / 1e9,
                "of the peak": flops[work] / seconds[work] / peak,
            }
            for work in (*PHASES, "both phases")
        ]
    return rows


def steps_of(
    name: str, batch: int, precision: Precision = "float32"
) -> dict[str, Callable[[], None]]:
    """One training step of each phase, update included."""
    model = channels_last(build_model(name, 10, (3, 32, 32)))
    extractor = channels_last(Extractor())
    x = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    samples, zeros = Batch(x, torch.randint(10, (batch,))), ShareOfZeros()

    def step(learner: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
        update = SGD(learner.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-3, fused=True)

        def work() -> None:
            update.zero_grad()
            with computing(precision, CPU):
                found = loss()
            found.backward()
            clip_gradients(learner, 50.0)
            update.step()

        return work

    def phase1() -> Tensor:
        with frozen(extractor):
            return model_loss(model, extractor, samples, 0.1)

    phase2 = step(extractor, lambda: extractor_loss(model, extractor, samples, zeros))

    def frozen_phase2() -> None:
        with frozen(model):
            phase2()

    standalone = step(model, lambda: F.cross_entropy(model(samples.x), samples.y))
    return dict(zip(PHASES, (standalone, step(model, phase1), frozen_phase2), strict=True))


def _multiplication() -> Callable[[], None]:
    a, b, product = (torch.randn(SIDE, SIDE) for _ in range(3))

    def multiply() -> None:
        torch.mm(a, b, out=product)

    return multiply


def _flops(work: Callable[[], None]) -> int:
    with CountedFlops() as counted:
        work()
    total: int = counted.total
    return total


def medians(works: dict[str, Callable[[], None]], repetitions: int) -> dict[str, float]:
    """Of processor time, all works in turn; the first turn warms up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repetitions + 1):
        for name, work in works.items():
            began = time.process_time()
            work()
            times[name].append(time.process_time() - began)
    return {name: statistics.median(spent[1:]) for name, spent in times.items()}
