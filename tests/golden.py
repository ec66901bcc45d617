"""Runs whose every number is known: all methods and what else must not change by a bit.

`fixtures/make.py` recorded what they gave; `test_golden.py` runs them again and compares.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from torch.nn import functional as F

from pfedes import Config, Participant, Run, configure
from pfedes.methods import METHODS
from running import small, timeless
from tiny import CLASSES

TINY: Mapping[str, Any] = {
    "federation.classes": list(CLASSES),
    "federation.channels": 1,
    "train.rounds": 2,
    "train.epochs": 1,
    "train.batch_size": 16,
    "method.extractor_epochs": 1,
    "runtime.fleet": "serial",
    "runtime.report": False,
}
"""Terms that suit the participants of `tiny`."""


def tiny(kind: str, model: str, **settings: Any) -> Config:
    """Two participants with data of a kind, `images` or `rows`, and a model each."""
    people = [
        Participant(
            name=name,
            model=f"tiny:{model}",
            data=f"tiny:{name}_{kind}",
            methods=tuple(METHODS),
        )
        for name in ("ada", "ben")
    ]
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    return configure(participants=people, settings={**TINY, **chosen})


def cases() -> dict[str, Config]:
    """The runs by name, each of two rounds."""
    # Six classes each: methods that exchange what clients know of a class need common ones.
    quick: Mapping[str, Any] = {
        "data__limit": 80,
        "partition__clients": 3,
        "partition__classes_per_client": 6,
    }
    found = {
        # Parameters can be averaged only over clients with equal models.
        name: small(name, **quick, models__pool=["cnn5"] if name == "fedavg" else ["cnn5", "cnn4"])
        for name in METHODS
    }
    found["batch normalisation"] = tiny("images", "normalised")
    found["table"] = tiny("rows", "tabular")
    found["workers"] = small(**quick, runtime__fleet="workers", runtime__workers=2)
    return found


def outcome(run: Run) -> dict[str, Any]:
    """All that a run gave, times and its random id excepted."""
    manifest = json.loads(run.manifest.model_dump_json())
    return {
        "states": {name: standing["digest"] for name, standing in manifest["clients"].items()},
        "server": manifest["server_digest"],
        "rounds": [timeless(row) for row in run.rounds],
        "clients": [timeless(row) for row in run.clients],
        "summary": timeless(run.summary),
    }


def machine() -> dict[str, str]:
    """What bits depend on besides the code."""
    return {
        "torch_build": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "kernels": kernels(),
    }


def kernels() -> str:
    """A digest of one training step by torch alone.

    Processors of equal capability give different bits: torch chooses its kernels by the model of
    the processor and the sizes of its caches, too.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    images = torch.randn(16, 3, 32, 32, generator=random).to(memory_format=torch.channels_last)
    weights = [
        (torch.randn(shape, generator=random) / 20).requires_grad_()
        for shape in ((16, 3, 5, 5), (32, 16, 5, 5), (100, 800), (10, 100))
    ]
    first, second, third, last = weights
    hidden = F.max_pool2d(F.conv2d(images, first).relu(), 2)
    hidden = F.batch_norm(F.conv2d(hidden, second), None, None, training=True)
    logits = F.max_pool2d(hidden.relu(), 2).flatten(1) @ third.T @ last.T
    F.cross_entropy(logits, torch.arange(16) % 10).backward()
    torch.set_num_threads(threads)
    found = [weight.grad for weight in weights if weight.grad is not None]
    return sha256(b"".join(gradient.numpy().tobytes() for gradient in found)).hexdigest()
