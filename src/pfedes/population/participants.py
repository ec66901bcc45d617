"""Participants with models and data of their own, simulated together."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import nn

from pfedes.config.federation import FederationConfig
from pfedes.config.participant import Participant
from pfedes.core.client import Card, Client, parameters_of
from pfedes.core.context import Context
from pfedes.core.device import CPU
from pfedes.core.payload import Payload
from pfedes.core.samples import FloatSamples, Normaliser, Samples, Standardiser
from pfedes.core.seeding import Streams
from pfedes.data.dataset import Images, Progress, silent
from pfedes.data.partition import Rows
from pfedes.data.preprocess import Preprocess
from pfedes.data.tables import reading_once
from pfedes.errors import ConfigError, ManyError, ModelError, PfedesError
from pfedes.imports import is_own, own_function
from pfedes.methods.base import Method, Problem
from pfedes.models import channels_last
from pfedes.models.custom import participants_model
from pfedes.models.head import head_of
from pfedes.population.base import Population, one_of_each_class
from pfedes.population.consent import Consent
from pfedes.population.kept_own_data import kept_of_all
from pfedes.population.own_data import OwnData, Split, own_data
from pfedes.population.preflight import problems_of


class Participants(Population):
    """Everybody's data stays in memory: they are few, and each would fit their own machine."""

    def __init__(
        self,
        participants: Sequence[Participant],
        federation: FederationConfig,
        streams: Streams,
        device: torch.device = CPU,
        progress: Progress = silent,
        kept: Mapping[str, OwnData] | None = None,
    ) -> None:
        """Everybody's data is loaded, unless what was `kept` of it takes its place."""
        self.participants = {participant.name: participant for participant in participants}
        if len(self.participants) < len(participants):
            raise ConfigError("two participants have the same name: every one needs its own")
        if len(federation.classes) < 2:
            raise ConfigError("federation.classes must name the classes that participants share")
        self.federation = federation
        self.streams = streams
        self.device = device
        self.names = sorted(self.participants)
        self.class_names, self.channels = federation.classes, federation.channels
        self.architectures = {name: name for name in self.names}  # everybody's is their own
        self.normaliser = _normaliser(federation)
        self._data: dict[str, OwnData] = {}
        self._cards: dict[str, Card] = {}
        failures: list[PfedesError] = []
        with reading_once():
            for done, name in enumerate(self.names, 1):
                failures += self._load(name, progress, None if kept is None else kept[name])
                progress("loading participants' data", done, len(self.names))
        if failures:
            raise failures[0] if len(failures) == 1 else ManyError(failures)
        self.sizes = {name: len(data.train) for name, data in self._data.items()}
        self.samples = sum(len(part) for name in self.names for part in self.labels(name).values())
        digests = [data.digest() for data in self._data.values()]
        self.digest = sha256(" ".join(digests).encode()).hexdigest()

    def _load(self, name: str, progress: Progress, kept: OwnData | None) -> Iterator[PfedesError]:
        """Takes a participant's data in and tries its model; what is wrong with either."""
        participant, rng = self.participants[name], self.streams.numpy("split", client=name)
        try:
            data = kept or own_data(participant, self.federation, rng, progress)
            _check_terms(name, data, self.federation)
        except PfedesError as error:
            yield error
            if is_own(participant.model):  # without data that is all that can be tried of it
                try:
                    own_function(participant.model, f"{name}: model")
                except ConfigError as another:
                    yield another
            return
        self._data[name] = data
        try:
            self.untrained(name)
        except PfedesError as error:
            yield error

    def client(self, name: str, model: nn.Module | None = None) -> Client:
        data = self._data[name]
        return Client(
            name=name,
            architecture=self.architectures[name],
            model=self.untrained(name).to(self.device) if model is None else model,
            train=self._samples(data.train, data.has_inputs),
            val=self._samples(data.val, data.has_inputs),
            test=self._samples(data.test, data.has_inputs),
            precision=self.participants[name].precision or None,
        )

    def card(self, name: str, needs: Collection[str]) -> Card:
        if name not in self._cards:
            data, model = self._data[name], self.untrained(name)
            labels, counts = np.unique(data.train.labels, return_counts=True)
            try:
                width = head_of(model).in_features
            except ModelError as error:
                if "width" in needs:
                    raise ModelError(f"{name}: {error}") from None
                width = None
            classes = dict(zip(labels.tolist(), counts.tolist(), strict=True))
            self._cards[name] = Card(
                name, len(data.train), data.shape, 0, parameters_of(model), classes, width
            )
        return self._cards[name].revealing(needs)

    def model_name(self, name: str) -> str:
        # Without the way to the file: names are published, and paths tell about their owners.
        return self.participants[name].model.rpartition("/")[2]

    def labels(self, name: str) -> dict[str, Rows]:
        data = self._data[name]
        return {"train": data.train.labels, "val": data.val.labels, "test": data.test.labels}

    def preprocess(self, name: str) -> Preprocess | None:
        return self._data[name].preprocess

    def remarks(self, name: str) -> tuple[str, ...]:
        return self._data[name].remarks

    def terms(self) -> FederationConfig:
        return self.federation

    def consent(self, name: str) -> Consent:
        participant = self.participants[name]
        return Consent(
            participant.methods, participant.consents, participant.limits, participant.share
        )

    def check(self, method: Method[Any], ctx: Context) -> list[Problem]:
        found = []
        for name in self.names:
            card = self.card(name, method.needs)
            for reason in self.consent(name).refusals(method, card, ctx):
                found.append(Problem(name, reason, "the participant decides"))
            client = self.client(name)
            found += [*problems_of(client), *_unfit(method, client, ctx)]
        return found

    def pictures(self, count: int) -> tuple[Images, Rows] | None:
        for data in self._data.values():
            if data.has_inputs and data.train.inputs.dtype == np.uint8:
                rows = one_of_each_class(data.train.labels, count)
                return data.train.inputs[rows], data.train.labels[rows]
        return None

    @property
    def kept(self) -> Payload | None:
        return kept_of_all(self._data, len(self.class_names))

    def untrained(self, name: str) -> nn.Module:
        participant, shape = self.participants[name], self._data[name].shape
        try:
            with self.streams.ambient("init.model", client=name):
                model = participants_model(
                    participant.model, len(self.class_names), shape, participant.head
                )
        except (ModelError, ConfigError) as error:
            raise type(error)(f"{name}: {error}") from None
        return channels_last(model) if len(shape) == 3 else model

    def _samples(self, split: Split, has_inputs: bool) -> Samples:
        if has_inputs:
            inputs = torch.from_numpy(np.ascontiguousarray(split.inputs)).to(self.device)
        else:  # a size without contents: computing with it fails
            kind = torch.uint8 if split.inputs.dtype == np.uint8 else torch.float32
            inputs = torch.empty(split.inputs.shape, dtype=kind, device="meta")
        labels = torch.from_numpy(split.labels).to(self.device)
        if split.inputs.dtype == np.uint8:
            return Samples(inputs, labels, self.normaliser)
        terms = self.federation
        return FloatSamples(inputs, labels, Standardiser.of(terms.mean or [0], terms.std or [1]))


def _unfit(method: Method[Any], client: Client, ctx: Context) -> Iterator[Problem]:
    """Why a method cannot work with a client's model, as far as its preparation tells."""
    try:
        with ctx.streams.ambient("client", round=ctx.round, client=client.name):
            method.prepare(client, ctx)
    except ModelError as error:
        yield Problem(client.name, str(error), "or choose another method")


def _check_terms(name: str, data: OwnData, federation: FederationConfig) -> None:
    for key, values in (("mean", federation.mean), ("std", federation.std)):
        if values and len(values) != data.shape[0]:
            raise ConfigError(
                f"federation.{key} has {len(values)} numbers, but inputs of {name} have "
                f"{data.shape[0]} channels"
            )


def _normaliser(federation: FederationConfig) -> Normaliser:
    """Of pixels; who has none needs no fitting numbers for it."""
    channels = federation.channels
    mean, std = federation.mean or (0.0,) * channels, federation.std or (1.0,) * channels
    return Normaliser.of(mean, std)
