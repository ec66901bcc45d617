"""Participants on other machines: this side knows their names, but not their models or data."""

import json
from collections.abc import Collection
from hashlib import sha256
from typing import NoReturn

import torch
from torch import nn

from pfedes.config.federation import NETWORK, FederationConfig
from pfedes.core.client import Card, Client
from pfedes.core.device import CPU
from pfedes.core.samples import Normaliser
from pfedes.data.dataset import Images
from pfedes.data.partition import Rows
from pfedes.errors import ConfigError, StoreError
from pfedes.population.base import Population

ALWAYS = {"classes", "channels", "mean", "std"}
"""Keys that digests held before there were others: at their defaults or not."""


class RemotePopulation(Population):
    """The participants as a coordinator knows them: their names and the terms."""

    is_here = False

    def __init__(self, terms: FederationConfig, device: torch.device = CPU) -> None:
        if len(terms.classes) < 2:
            raise ConfigError("federation.classes must name the classes that participants share")
        if len(set(terms.participants)) < len(terms.participants):
            raise ConfigError("federation.participants names a participant twice")
        self._terms = terms
        self.device = device
        self.names = sorted(terms.participants)
        self.class_names, self.channels = terms.classes, terms.channels
        self.architectures = {}
        self.sizes = {}
        self.samples = 0
        ones, zeros = (1.0,) * terms.channels, (0.0,) * terms.channels
        self.normaliser = Normaliser.of(terms.mean or zeros, terms.std or ones)
        self.digest = _digest(terms)

    def terms(self) -> FederationConfig:
        return self._terms

    def client(self, name: str, model: nn.Module | None = None) -> Client:
        _refuse(name)

    def untrained(self, name: str) -> nn.Module:
        _refuse(name)

    def card(self, name: str, needs: Collection[str]) -> Card:
        _refuse(name)

    def labels(self, name: str) -> dict[str, Rows]:
        _refuse(name)

    def pictures(self, count: int) -> tuple[Images, Rows] | None:
        return None


def _refuse(name: str) -> NoReturn:
    raise StoreError(
        f"{name}'s model and data are on its own machine: what it keeps there is in the 'state' "
        "directory of its participant.toml"
    )


def _digest(terms: FederationConfig) -> str:
    """Identifies what was agreed on: the first four keys always, others where they are set."""
    text = terms.model_dump_json(include=ALWAYS)
    more = terms.model_dump(mode="json", exclude=ALWAYS | NETWORK, exclude_defaults=True)
    if more:
        text += json.dumps(more, sort_keys=True)
    return sha256(text.encode()).hexdigest()
