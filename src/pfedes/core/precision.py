"""Numbers of half the width in local training, where a processor multiplies them faster.

With bf16, torch's autocast lets convolutions and matrix products of a training step compute in
bfloat16. Weights, momentum, messages and measurements stay float32.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["float32", "bf16"]


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a training step computes its losses; their gradients need none."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


def is_native(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 itself, and does not imitate it in float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return True  # nothing is known of others
    found = torch.cpu.get_capabilities()
    return any(found.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
