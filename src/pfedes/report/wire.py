"""What left each client and what never did, by the lists that are enforced and by what is stored.

Nothing here knows a method. What may travel is read from the allow-list that both sides check
against; what did, from the rows; and whether a part of a client's saved state was in its answer is
found by comparing the two, bit for bit.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pfedes.client import Card
from pfedes.clientstore import ClientStore, Version
from pfedes.errors import DamageError
from pfedes.fleet.base import Task
from pfedes.fleet.host import reply_spec
from pfedes.payload import Max, MetaSpec, Payload, TensorSpec, WireSpec, within
from pfedes.report.formats import between, count
from pfedes.shape import ROWS, Shape, kind_of

if TYPE_CHECKING:
    from pfedes.run import Run
    from pfedes.simulation import Simulation

MOST_KINDS = 4  # of clients with lists of their own that are shown
MOST_TENSORS = 60  # of one list that are shown
MOST_LISTS = 500  # that are looked at: making one may take building a model

OF_A_CARD = {
    "name": "its name",
    "samples": "the number of its training samples",
    "shape": "the shape of its inputs",
    "parameters": "names, types and shapes of its model's tensors",
    "classes": "its classes, with the number of training samples of each",
    "width": "the width of its model's representation",
}
SECRET = "which architecture it has"


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
class Kind:
    """Clients with the same lists."""

    clients: int
    example: str
    down: Direction
    up: Direction


@dataclass(frozen=True)
class Counted:
    """What was counted in the rows of all rounds, for each task."""

    tasks: int
    replies: int
    floats_down: str
    floats_up: str
    metadata_up: str


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


@dataclass(frozen=True)
class WireReport:
    """The section as data."""

    on_card: tuple[str, ...]
    not_on_card: tuple[str, ...]
    kinds: tuple[Kind, ...]
    other_kinds: int
    other_clients: int
    counted: Counted
    private: tuple[Private, ...]
    samples: int
    inputs: str  # images, signals, rows
    form: str
    numbers: int  # in one input
    form_tells: bool  # whether a tensor of that form would be remarkable


def wire_report(run: "Run", simulation: "Simulation") -> WireReport:
    cards = run.store.cards(run.manifest)
    kinds = _kinds(cards, simulation)
    shown = kinds[:MOST_KINDS]
    shape = cards[0].shape
    with run.reading_rows():
        counted = _counted(run)
    return WireReport(
        on_card=told_by(cards[0]),
        not_on_card=tuple(_untold(cards[0])),
        kinds=tuple(shown),
        other_kinds=len(kinds) - len(shown),
        other_clients=len(cards) - sum(kind.clients for kind in shown),
        counted=counted,
        private=tuple(_private(run, simulation)),
        samples=simulation.population.samples,
        inputs=kind_of(shape),
        form=" x ".join(map(str, shape)),
        numbers=math.prod(shape),
        form_tells=len(shape) > ROWS,
    )


def told_by(card: Card) -> tuple[str, ...]:
    """What the server knows of a client before the first round, in words."""
    return tuple(text for key, text in OF_A_CARD.items() if _is_on(card, key))


def _is_on(card: Card, key: str) -> bool:
    return getattr(card, key) is not None


def _untold(card: Card) -> Iterator[str]:
    """What is not on a card, nor follows from what is."""
    if not _is_on(card, "parameters"):
        yield SECRET
        yield OF_A_CARD["parameters"]
        if not _is_on(card, "width"):
            yield OF_A_CARD["width"]
    if not _is_on(card, "classes"):
        yield OF_A_CARD["classes"]


def _kinds(cards: Sequence[Card], simulation: "Simulation") -> list[Kind]:
    """The different lists there are, with the most common first."""
    # A list depends on what is on the card, so clients whose cards say the same share one.
    alike: dict[str, list[Card]] = defaultdict(list)
    for card in cards:
        alike[repr(replace(card, name="", samples=0, accepted=0))].append(card)
    found: dict[tuple[Direction, Direction], list[Card]] = defaultdict(list)
    for group in list(alike.values())[:MOST_LISTS]:
        found[lists_of(group[0], simulation)].extend(group)
    kinds = [Kind(len(group), group[0].name, *lists) for lists, group in found.items()]
    return sorted(kinds, key=lambda kind: -kind.clients)


def lists_of(card: Card, simulation: "Simulation") -> tuple[Direction, Direction]:
    """What may travel to a client and from it."""
    ctx = simulation.context(1)
    down = simulation.method.allowed(card, ctx).down
    identity = dict.fromkeys(Task("", card.name, 1, 0, Payload()).identity(), "of the task")
    return (
        _direction(down, identity, card.shape),
        _direction(reply_spec(simulation.method, card, ctx), {}, card.shape),
    )


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


def _counted(run: "Run") -> Counted:
    # Whoever answered sent metadata at least; a client that failed sent nothing.
    replies = [row for row in run.clients if row["metadata_up"] > 0]
    return Counted(
        tasks=len(run.clients),
        replies=len(replies),
        floats_down=_extent(row["floats_down"] for row in run.clients),
        floats_up=_extent(row["floats_up"] for row in replies),
        metadata_up=_extent(row["metadata_up"] for row in replies),
    )


def _extent(values: Iterable[int]) -> str:
    known = list(values)
    return between(min(known), max(known)) if known else "-"


def _private(run: "Run", simulation: "Simulation") -> Iterator[Private]:
    """For each architecture the latest answer of one client, compared with its saved state."""
    population = simulation.population
    clients: dict[str, list[str]] = defaultdict(list)
    for name, architecture in population.architectures.items():
        clients[architecture].append(name)
    for _, names in sorted(clients.items()):
        name = max(names, key=lambda name: run.manifest.clients[name].version)
        version = run.manifest.clients[name].version
        found = private_of(run.store.clients, run.manifest.run, simulation, name, version)
        yield replace(found, clients=len(names))


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
        # Who never trained has no file; of a run that goes on an older one may be gone by now; and
        # clients may keep theirs elsewhere. What is there must be whole.
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
