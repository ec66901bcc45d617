"""Clients among which one data set is divided."""

import math
from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import nn

from pfedes.config.federation import FederationConfig
from pfedes.core.client import Card, Client, Parameters, parameters_of
from pfedes.core.device import CPU
from pfedes.core.payload import Payload
from pfedes.core.samples import Normaliser, Samples
from pfedes.core.seeding import Streams
from pfedes.data.dataset import Dataset, Images
from pfedes.data.kept import kept_of
from pfedes.data.partition import PartitionConfig, Rows, Share, partition
from pfedes.data.sources import IMAGENET, DataConfig, stratified
from pfedes.errors import ConfigError
from pfedes.models import ModelsConfig, build_model, channels_last
from pfedes.models.head import head_of
from pfedes.population.base import Population, client_names, one_of_each_class
from pfedes.population.consent import Consent


class PartitionedPopulation(Population):
    """One data set, dealt to as many clients as one likes: memory does not grow with them."""

    def __init__(
        self,
        dataset: Dataset,
        data: DataConfig,
        partition_config: PartitionConfig,
        models: ModelsConfig,
        streams: Streams,
        device: torch.device = CPU,
    ) -> None:
        self.dataset = dataset
        self.models = models
        self.streams = streams
        self.device = device
        self._known_shapes: dict[str, tuple[Parameters, int]] = {}
        self._known_cards: dict[str, Card] = {}
        self._statistics = _statistics(dataset, data)
        self.normaliser = Normaliser.of(*self._statistics)
        rows = stratified(dataset.labels, data.limit, streams.numpy("limit"))
        shares = partition(
            dataset.labels[rows],
            partition_config,
            streams.numpy("partition"),
            official_test=rows >= dataset.official_train,
        )
        self.names = client_names(len(shares))
        self.shares = dict(zip(self.names, [_mapped(rows, s) for s in shares], strict=True))
        self.architectures = dict(
            zip(self.names, _assign(models, len(shares), streams), strict=True)
        )
        self.class_names, self.channels = dataset.class_names, dataset.shape[0]
        self.digest = dataset.digest
        self.sizes = {name: len(share.train) for name, share in self.shares.items()}
        self.samples = sum(len(share.rows()) for share in shares)
        self.consented: Consent | None = None  # all that clients let happen; None = anything

    def client(self, name: str, model: nn.Module | None = None) -> Client:
        share = self.shares[name]
        return Client(
            name=name,
            architecture=self.architectures[name],
            model=self.untrained(name).to(self.device) if model is None else model,
            train=self.samples_of(share.train),
            val=self.samples_of(share.val),
            test=self.samples_of(share.test),
        )

    def shorten(self, name: str, samples: int) -> None:
        """Leaves a client this many training samples, and of the others as large a part."""
        share = self.shares[name]
        part = min(1.0, samples / len(share.train))
        splits = (share.train, share.val, share.test)
        self._deal(name, Share(*(rows[: math.ceil(part * len(rows))] for rows in splits)))

    def hold(self, name: str, train: Rows) -> None:
        """Lets a client train on these rows and no others."""
        share = self.shares[name]
        self._deal(name, Share(train, share.val, share.test))

    def _deal(self, name: str, share: Share) -> None:
        self.shares[name] = share
        self.sizes[name] = len(share.train)
        self._known_cards.pop(name, None)

    def card(self, name: str, needs: Collection[str]) -> Card:
        known = self._known_cards.get(name)
        if known is None:
            rows = self.shares[name].train
            labels, counts = np.unique(self.dataset.labels[rows], return_counts=True)
            classes = dict(zip(labels.tolist(), counts.tolist(), strict=True))
            parameters, width = self._shape_of_model(name)
            known = Card(name, len(rows), self.dataset.shape, 0, parameters, classes, width)
            self._known_cards[name] = known
        return known.revealing(needs)

    def consent(self, name: str) -> Consent | None:
        return self.consented

    def labels(self, name: str) -> dict[str, Rows]:
        share, labels = self.shares[name], self.dataset.labels
        return {"train": labels[share.train], "val": labels[share.val], "test": labels[share.test]}

    def terms(self) -> FederationConfig:
        mean, std = self._statistics
        return FederationConfig(
            classes=self.class_names, channels=self.channels, mean=mean, std=std
        )

    def pictures(self, count: int) -> tuple[Images, Rows] | None:
        if not self.dataset.has_images:
            return None
        rows = one_of_each_class(self.dataset.labels, count)
        return self.dataset.pixels(rows), self.dataset.labels[rows]

    @property
    def kept(self) -> Payload | None:
        return kept_of(self.dataset)

    def untrained(self, name: str) -> nn.Module:
        architecture = self.architectures[name]
        whose = name if self.models.init == "independent" else architecture
        with self.streams.ambient("init.model", client=whose):
            model = build_model(architecture, len(self.dataset.class_names), self.dataset.shape)
        return channels_last(model)

    def _shape_of_model(self, name: str) -> tuple[Parameters, int]:
        architecture = self.architectures[name]
        if architecture not in self._known_shapes:
            model = self.untrained(name)
            self._known_shapes[architecture] = parameters_of(model), head_of(model).in_features
        return self._known_shapes[architecture]

    def samples_of(self, rows: Rows) -> Samples:
        """Any rows of the data set, as a client that held them would see them."""
        labels = torch.from_numpy(self.dataset.labels[rows])
        if not self.dataset.has_images:  # a size without contents: computing with it fails
            size = (len(rows), *self.dataset.images.shape[1:])
            absent = torch.empty(size, dtype=torch.uint8, device="meta")
            return Samples(absent, labels.to(self.device), self.normaliser)
        pixels = torch.from_numpy(self.dataset.pixels(rows))
        return Samples(pixels.to(self.device), labels.to(self.device), self.normaliser)


def _assign(models: ModelsConfig, clients: int, streams: Streams) -> Sequence[str]:
    pool = models.pool
    if models.assign == "round_robin":
        return [pool[number % len(pool)] for number in range(clients)]
    choice = streams.numpy("models").integers(len(pool), size=clients)
    return [pool[number] for number in choice]


Floats = tuple[float, ...]


def _statistics(dataset: Dataset, data: DataConfig) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each channel, of pixels in 0..1."""
    channels = dataset.shape[0]
    if data.normalise == "none":
        return (0.0,) * channels, (1.0,) * channels
    if data.normalise == "dataset":
        return dataset.mean, dataset.std
    if channels != len(IMAGENET[0]):
        raise ConfigError(f"data.normalise = 'imagenet' is for 3 channels, the data has {channels}")
    return IMAGENET


def _mapped(rows: Rows, share: Share) -> Share:
    return Share(rows[share.train], rows[share.val], rows[share.test])
