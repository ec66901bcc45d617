"""Where clients train."""

from typing import Literal

import torch

from pfedes.errors import ConfigError

CPU = torch.device("cpu")


def device_of(wanted: Literal["auto", "cpu", "cuda", "mps"]) -> torch.device:
    """The device of that name; `auto` prefers a GPU."""
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if wanted == "auto":
        return torch.device(next(name for name, available in there.items() if available))
    if not there[wanted]:
        raise ConfigError(f"runtime.device = {wanted!r}: torch finds no such device here")
    return torch.device(wanted)
