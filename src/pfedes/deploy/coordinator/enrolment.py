"""Checks an enrolment: the result is a valid card, or the reason for refusing it."""

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from pfedes.core.client import Card, card_from
from pfedes.core.payload import within
from pfedes.deploy.sizes import MEBIBYTE
from pfedes.deploy.versions import check_versions
from pfedes.errors import WireError
from pfedes.population.simulation import Simulation

log = logging.getLogger(__name__)

LONGEST_CARD = 1_000_000  # characters: a card may name every tensor of a model
LARGEST_INPUT = 2**24  # numbers in one input or representation
FILLED = 0.9  # of a message, by its tensors: there are names and metadata, too
LARGEST_COUNT = 10**12  # samples, in all or of a class
MOST_DIMENSIONS = 8
MOST_TENSORS, LONGEST_NAME = 10_000, 300  # of a model, where a method needs their names


class Enrolment:
    """Checks participants that want to take part in a run, or to take part again."""

    def __init__(self, simulation: Simulation, enrolled: Mapping[str, Card]) -> None:
        """`enrolled` are the cards of earlier participants, which cannot change."""
        self._simulation = simulation
        self._needs = simulation.method.needs
        terms = simulation.config.federation
        self._classes, self._max_message = len(terms.classes), terms.max_message
        self._enrolled = enrolled

    def check_versions(self, site: str, meta: Mapping[str, Any]) -> None:
        """Refuses a participant with an incompatible version, by a WireError."""
        for note in check_versions(within("up/", meta), site):
            log.warning("%s", note)

    def card(self, site: str, text: Any) -> Card:
        """A site's card, or a WireError."""
        if not isinstance(text, str) or len(text) > LONGEST_CARD:
            raise WireError(f"its card is not a text of at most {LONGEST_CARD:,} characters")
        card = card_from(text)
        if card.name != site:
            raise WireError("its card names another participant")
        entries = {"classes" if need == "labels" else need for need in self._needs}
        lacking = any(getattr(card, entry) is None for entry in entries)
        if lacking or card != card.revealing(self._needs):
            raise WireError("its card does not have exactly the entries that the method needs")
        _check_sizes(card)
        if any(label >= self._classes for label in card.classes or ()):
            raise WireError("its card has classes that the federation does not have")
        held = sum((card.classes or {}).values())
        if "classes" in self._needs and held != card.samples:
            raise WireError("the samples of its classes do not add up to its number of samples")
        self._check_messages(card)
        card = replace(card, accepted=0)
        first = replace(self._enrolled.get(site, card), accepted=0)
        if card != first:
            raise WireError(
                f"{_difference(first, card)}: a participant's data and model cannot change "
                "during a run"
            )
        return card

    def _check_messages(self, card: Card) -> None:
        """Before a network is built for it: how much would travel."""
        try:
            with torch.device("meta"):  # shapes without numbers
                wire = self._simulation.method.allowed(card, self._simulation.context(1))
            size = max(wire.down.most_bytes, wire.up.most_bytes) / MEBIBYTE
        except Exception as error:  # a method may raise anything for an impossible card
            raise WireError(f"the method has no messages for it: {type(error).__name__}") from None
        if size > self._max_message * FILLED:
            raise WireError(
                f"its messages would have {size:,.1f} MiB, more than federation.max_message "
                f"= {self._max_message} allows: raise that limit if the size is right"
            )


def _check_sizes(card: Card) -> None:
    numbers = max(math.prod(card.shape), card.width or 0)
    if len(card.shape) > MOST_DIMENSIONS or numbers > LARGEST_INPUT:
        raise WireError(f"inputs or a representation with more than {LARGEST_INPUT:,} numbers")
    if max([card.samples, *(card.classes or {}).values()]) > LARGEST_COUNT:
        raise WireError(f"more than {LARGEST_COUNT:,} samples")
    tensors = card.parameters or {}
    if len(tensors) > MOST_TENSORS or any(len(name) > LONGEST_NAME for name in tensors):
        raise WireError(
            f"more than {MOST_TENSORS:,} tensors, or names of more than {LONGEST_NAME} characters"
        )


def _difference(first: Card, now: Card) -> str:
    if now.samples != first.samples:
        return f"{now.samples} training samples, but it enrolled with {first.samples}"
    return "its card differs from the one that it enrolled with"
