"""What may leave each client, by the lists that are enforced; what was sent, as it was counted.

Nothing here knows a method. What may travel is read from the allow-list that both sides check
against; what was sent, from the rows. Whether an answer holds a tensor of the client's saved state
verbatim is found by comparing the two bit for bit. That is all it shows: a method that sends twice
its model sends nothing verbatim.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pfedes.core.client import Card
from pfedes.core.shapes import ROWS, kind_of
from pfedes.formatting import between

if TYPE_CHECKING:
    from pfedes.population.simulation import Simulation
    from pfedes.results.run import Run
from pfedes.results.disclosure import (
    OF_A_CARD,
    Direction,
    Private,
    is_on,
    lists_of,
    private_of,
    told_by,
)

MOST_KINDS = 4  # of clients with lists of their own that are shown
MOST_LISTS = 500  # that are looked at: making one may take building a model
SECRET = "which architecture it has"
COUNTS = "the number of training samples of each class"


@dataclass(frozen=True)
class Kind:
    """Clients with the same lists."""

    clients: int
    example: str
    down: Direction
    up: Direction


@dataclass(frozen=True)
class Counted:
    """The counts in the rows of all rounds, for each task."""

    tasks: int
    replies: int
    floats_down: str
    floats_up: str
    metadata_up: str


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


def _untold(card: Card) -> Iterator[str]:
    """The facts that are neither on a card nor follow from it."""
    if not is_on(card, "parameters"):
        yield SECRET
        yield OF_A_CARD["parameters"]
        if not is_on(card, "width"):
            yield OF_A_CARD["width"]
    if is_on(card, "labels"):
        yield COUNTS
    elif not is_on(card, "classes"):
        yield OF_A_CARD["classes"]


def _kinds(cards: Sequence[Card], simulation: "Simulation") -> list[Kind]:
    """The different lists there are, with the most common first."""
    # A list depends on the card only, so clients with equal cards share one.
    alike: dict[str, list[Card]] = defaultdict(list)
    for card in cards:
        alike[repr(replace(card, name="", samples=0, accepted=0))].append(card)
    found: dict[tuple[Direction, Direction], list[Card]] = defaultdict(list)
    for group in list(alike.values())[:MOST_LISTS]:
        found[lists_of(group[0], simulation, over_network=simulation.over_network)].extend(group)
    kinds = [Kind(len(group), group[0].name, *lists) for lists, group in found.items()]
    return sorted(kinds, key=lambda kind: -kind.clients)


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
