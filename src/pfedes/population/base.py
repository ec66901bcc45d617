"""The clients of a simulation: who holds which data and which model."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import nn

from pfedes.config.federation import FederationConfig
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload
from pfedes.core.samples import Normaliser
from pfedes.data.dataset import Images
from pfedes.data.partition import Rows
from pfedes.data.preprocess import Preprocess
from pfedes.methods.base import Method, Problem
from pfedes.population.consent import Consent


def client_names(count: int) -> list[str]:
    """The names of a simulation's clients."""
    return [f"client-{number:04d}" for number in range(count)]


class Population(ABC):
    """The clients of a federation: names, cards, and clients built on demand."""

    is_here = True  # whether models and data are on this machine
    names: list[str]
    class_names: tuple[str, ...]
    channels: int
    digest: str  # of everybody's data
    architectures: dict[str, str]  # by name; clients of one architecture can share a module
    sizes: dict[str, int]  # training samples by name
    device: torch.device
    normaliser: Normaliser
    samples: int  # of all splits of all clients

    @abstractmethod
    def client(self, name: str, model: nn.Module | None = None) -> Client:
        """A client as it is before its first round, or with a model that is there already."""

    @abstractmethod
    def card(self, name: str, needs: Collection[str]) -> Card:
        """The client's card, with no more on it than is needed."""

    @abstractmethod
    def untrained(self, name: str) -> nn.Module:
        """The client's model before its first round."""

    def model_name(self, name: str) -> str:
        """The name of a client's model: built-in, or `file.py:function` of its own."""
        return self.architectures[name]

    @abstractmethod
    def labels(self, name: str) -> dict[str, Rows]:
        """The labels of a client's train, val and test samples."""

    @abstractmethod
    def pictures(self, count: int) -> tuple[Images, Rows] | None:
        """Some images of different classes, of one size, with their labels; None without images."""

    def cards(self, needs: Collection[str]) -> list[Card]:
        return [self.card(name, needs) for name in self.names]

    @abstractmethod
    def terms(self) -> FederationConfig:
        """The terms that a later participant must share."""

    @property
    def kept(self) -> Payload | None:
        """The values that a run stores to use its models without the data; None if it cannot."""
        return None

    def preprocess(self, name: str) -> Preprocess | None:
        """How rows of a table become a client's inputs; None if its data is no table."""
        return None

    def remarks(self, name: str) -> tuple[str, ...]:
        """Remarks on what is odd about a client's data, but not wrong."""
        return ()

    def consent(self, name: str) -> Consent | None:
        """The consents of a client; None for clients of a partition."""
        return None

    def check(self, method: Method[Any], ctx: Context) -> list[Problem]:
        """Before round 1: what is wrong with anybody's model, data or consent."""
        return []


def one_of_each_class(labels: Rows, count: int) -> Rows:
    """The first sample of each of `count` classes, spread evenly over all."""
    present, first = np.unique(labels, return_index=True)
    chosen = np.linspace(0, len(present) - 1, min(count, len(present))).round().astype(np.int64)
    rows: Rows = first[chosen].astype(np.int64)
    return rows
