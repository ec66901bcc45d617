"""Methods, contexts and uploads small enough to compute with by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pfedes import Card, Context, Federation, Method, Payload, Run
from pfedes.core.payload import State
from pfedes.methods import METHODS
from pfedes.methods.base import Received
from pfedes.population.simulation import Simulation
from running import small


def made(name: str, **keys: Any) -> Method[Any]:
    return METHODS[name](**keys)


def context(classes: int = 10, round: int = 1, **settings: Any) -> Context:
    return replace(Simulation(small("standalone", **settings)).context(round), classes=classes)


def upload(
    name: str, tensors: dict[str, Any], labels: Sequence[int], counts: Sequence[int] = ()
) -> Received:
    """What a client with these classes sent; representations have two numbers."""
    classes = dict(zip(labels, counts or [1] * len(labels), strict=True))
    rows = {key: torch.as_tensor(value, dtype=torch.float32) for key, value in tensors.items()}
    card = Card(name, 40, (3, 32, 32), classes=classes, width=2)
    return Received(card, Payload(rows, {"labels": list(labels)}))


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def digests(run: Run) -> dict[str, str]:
    return {
        name: Payload(dict(run.model(name).state_dict())).digest() for name in run.manifest.clients
    }


def run_of(method: str, out: Path, **settings: Any) -> Run:
    return Federation(small(method, **settings), out=out / method).run()


def server_state(run: Run) -> State:
    return run.store.server_state(run.manifest)
