"""What may leave a client, by the lists that are enforced, and what an answer held verbatim."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pfedes.core.client import Card
from pfedes.core.context import Metadata
from pfedes.core.payload import Max, Payload, TensorSpec, within
from pfedes.core.protocol import MEASURES, Task
from pfedes.core.shapes import ROWS, Shape
from pfedes.core.wire import MetaSpec, WireSpec
from pfedes.errors import DamageError
from pfedes.fleet.allow_list import reply_spec
from pfedes.formatting import between, count
from pfedes.store.client_store import ClientStore, Version

if TYPE_CHECKING:
    from pfedes.population.simulation import Simulation

MOST_TENSORS = 60  # of one list that are shown

CLASS_BY_CLASS = "confusion matrices, and the AUC of each class"
"""The results that leave beside a reply if the terms and the participant say so."""

OF_A_CARD = {
    "name": "its name",
    "samples": "the number of its training samples",
    "shape": "the shape of its inputs",
    "parameters": "names, types and shapes of its model's tensors",
    "classes": "its classes, with the number of training samples of each",
    "labels": "its classes",
    "width": "the width of its model's representation",
}


@dataclass(frozen=True)
class Listed:
    """A line of an allow-list. `instead` marks another form of what stands above it."""

    name: str
    shape: str
    numbers: str
    instead: bool = False


@dataclass(frozen=True)
class Direction:
    """The allow-list of one direction, as people read it."""

    tensors: tuple[Listed, ...]
    meta: tuple[tuple[str, str], ...]
    least: int  # numbers in the tensors
    most: int
    input_like: tuple[str, ...]  # tensors that have the form of clients' inputs

    @property
    def numbers(self) -> str:
        return between(self.least, self.most)

    @property
    def shown(self) -> tuple[Listed, ...]:
        return self.tensors[:MOST_TENSORS]


@dataclass(frozen=True)
class Private:
    """The clients of one architecture, and what one of them has stored beside its answer."""

    architecture: str
    clients: int
    numbers: int  # in the model
    checked: str = ""  # the client whose state was compared with its answer; "" if none was
    round: int = 0
    left: tuple[str, ...] = ()  # tensors of the model that were in it
    numbers_left: int = 0
    kept: tuple[str, ...] = ()  # kept beside the model and not sent

    @property
    def numbers_stayed(self) -> int:
        return self.numbers - self.numbers_left


def told_by(card: Card, metadata: Metadata = "all") -> tuple[str, ...]:
    """The facts that the server knows of a client before the first round, in words."""
    stays = {"samples"} if metadata != "all" else set()
    return tuple(text for key, text in OF_A_CARD.items() if key not in stays and is_on(card, key))


def is_on(card: Card, key: str) -> bool:
    """Whether a card has an entry: a field of `Card`, or "labels", class ids without counts."""
    # Where only class ids were needed, every count on the card is 1.
    counted = card.classes is not None and sum(card.classes.values()) == card.samples
    if key in ("classes", "labels"):
        return card.classes is not None and counted is (key == "classes")
    return getattr(card, key) is not None


def lists_of(
    card: Card, simulation: "Simulation", *, over_network: bool
) -> tuple[Direction, Direction]:
    """The lists of what may travel to a client and from it; over a network, less may leave."""
    ctx = simulation.context(1)
    down = simulation.method.allowed(card, ctx).down
    identity = dict.fromkeys(Task("", card.name, 1, 0, Payload()).identity(), "of the task")
    up = reply_spec(simulation.method, card, ctx, over_network=over_network)
    beside = {MEASURES: CLASS_BY_CLASS} if over_network and ctx.measures else {}
    return _direction(down, identity, card.shape), _direction(up, beside, card.shape)


def _direction(spec: WireSpec, identity: Mapping[str, str], shape: Shape) -> Direction:
    tensors: list[Listed] = []
    input_like: list[str] = []
    # Channels may come last. Of what has the length of a row there is no end: any bias may.
    forms = (shape, (*shape[1:], shape[0])) if len(shape) > ROWS else ()
    least = most = 0
    for group in spec.groups:
        sizes = [_sizes(option.values()) for option in group.options]
        least += min(low for low, _ in sizes)
        most += max(high for _, high in sizes)
        for number, option in enumerate(group.options):
            if not option and len(group.options) > 1:
                tensors.append(Listed("nothing", "", "0", instead=number > 0))
            for name, tensor in option.items():
                tensors.append(_listed(name, tensor, instead=number > 0))
                if tensor.shape[-len(shape) :] in forms:
                    input_like.append(name)
    meta = {**identity, **{name: _described(value) for name, value in spec.meta.items()}}
    return Direction(tuple(tensors), tuple(meta.items()), least, most, tuple(input_like))


def _listed(name: str, tensor: TensorSpec, *, instead: bool) -> Listed:
    dims = [f"up to {d.limit}" if isinstance(d, Max) else f"{d}" for d in tensor.shape]
    shape = " x ".join(dims) or "one number"
    dtype = str(tensor.dtype).removeprefix("torch.")
    least, most = _sizes([tensor])
    numbers = count(most) if least == most else f"up to {count(most)}"
    return Listed(name, f"{shape} {dtype}", numbers, instead)


def _described(spec: MetaSpec) -> str:
    return spec.__name__ if isinstance(spec, type) else str(spec)


def _sizes(tensors: Iterable[TensorSpec]) -> tuple[int, int]:
    """How many numbers at least and at most."""
    least = most = 0
    for tensor in tensors:
        least += math.prod(0 if isinstance(d, Max) else d for d in tensor.shape)
        most += math.prod(d.limit if isinstance(d, Max) else d for d in tensor.shape)
    return least, most


def private_of(
    store: ClientStore, run: str, simulation: "Simulation", name: str, version: int
) -> Private:
    """One client's answer of a round, compared with the state it saved."""
    population = simulation.population
    parameters = population.card(name, ["parameters"]).parameters or {}
    numbers = sum(math.prod(shape) for _, shape in parameters.values())
    found = Private(population.architectures[name], 1, numbers)
    try:
        stored = store.load(run, name, version)
        return _compared(found, stored, name, version)
    except DamageError:
        # A client that never trained has no file, a run that continues may have removed an older
        # one, and clients may keep theirs elsewhere. What is there must be whole.
        if store.path(run, name, version).exists():
            raise
        return found


def _compared(found: Private, stored: Version, name: str, version: int) -> Private:
    state, reply = stored.state, stored.reply
    sent = {key for key, tensor in state.items() if _is_among(tensor, reply.tensors.values())}
    model, kept = within("model.", state), within("kept.", state)
    left = tuple(sorted(key for key in model if f"model.{key}" in sent))
    return replace(
        found,
        checked=name,
        round=version,
        left=left,
        numbers_left=sum(model[key].numel() for key in left),
        kept=tuple(sorted(key for key in kept if f"kept.{key}" not in sent)),
    )


def _is_among(tensor: Tensor, others: Iterable[Tensor]) -> bool:
    return any(
        tensor.shape == other.shape and tensor.dtype == other.dtype and torch.equal(tensor, other)
        for other in others
    )
