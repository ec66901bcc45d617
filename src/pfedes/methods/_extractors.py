"""The extractor that clients of pFedES share: which one it is, and whether all can share it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.payload import TensorSpec, read_payload
from pfedes.core.shapes import Shape, described, is_image
from pfedes.errors import ModelError
from pfedes.imports import is_own, name_of
from pfedes.methods.base import Problem, spec_of
from pfedes.models import channels_last
from pfedes.models.custom_extractor import Build, examine, own_extractor
from pfedes.models.extractor import Activation, Residual, extractor_for

BY_SHAPE = "auto"


class ExtractorKeys(Protocol):
    """The keys of a method's configuration that shape its extractor."""

    @property
    def extractor(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def final_activation(self) -> Activation: ...
    @property
    def final_activation_other(self) -> Activation: ...
    @property
    def start_from(self) -> str: ...
    @property
    def residual(self) -> bool: ...
    def model_dump(self, *, exclude_defaults: bool) -> dict[str, Any]: ...


def well_named(name: Any) -> Any:
    """Whether a name is of the right form; a run can be read where its extractor is not.

    A function in the place of its name is given one.
    """
    if callable(name):
        return name_of(name)
    if isinstance(name, str) and name != BY_SHAPE and not is_own(name):
        raise ValueError(f"expected {BY_SHAPE!r} or 'package.module:function'")
    return name


def unused_keys(config: ExtractorKeys) -> list[str]:
    """The keys that are set although the user's own extractor does not use them."""
    if config.extractor == BY_SHAPE:
        return []
    keys = ("width", "final_activation", "final_activation_other")
    return [key for key in keys if _is_set(config, key)]


class Extractors:
    """Makes extractors for inputs of any shape, as configured."""

    def __init__(self, config: ExtractorKeys) -> None:
        self.config = config
        self.own = config.extractor != BY_SHAPE
        self._build: Build = own_extractor(config.extractor) if self.own else self._by_shape
        self._specs: dict[Shape, dict[str, TensorSpec]] = {}

    def new(self, shape: Shape) -> nn.Module:
        """A freshly initialised one, laid out in memory as is fastest."""
        extractor = self._build(shape)
        if self.config.residual:
            extractor = Residual(extractor)
        return channels_last(extractor) if is_image(shape) else extractor

    def initial(self, shape: Shape, ctx: Context) -> nn.Module:
        """The one with the initial weights that all sides agree on."""
        with ctx.streams.ambient("init.extractor"):
            return self.new(shape)

    def first(self, shape: Shape, ctx: Context) -> dict[str, Tensor]:
        """The weights before round 1: random, or from `start_from`."""
        initial = self.initial(shape, ctx)
        if place := self.config.start_from:
            trained = read_payload(Path(place)).tensors
            try:
                initial.load_state_dict(trained)
            except RuntimeError:
                fits = f"{described(shape)} and method.width = {self.config.width}"
                raise ModelError(f"{place} holds no extractor for {fits}") from None
        return initial.state_dict()

    def spec(self, shape: Shape, ctx: Context) -> dict[str, TensorSpec]:
        """Names, shapes and types of its tensors; one is made to see them, once.

        Without numbers: somebody may ask for a width that fills the memory.
        """
        if shape not in self._specs:
            with torch.device("cpu" if self.own else "meta"):
                self._specs[shape] = spec_of(self.initial(shape, ctx))
        return self._specs[shape]

    def check(self, cards: Sequence[Card], ctx: Context, *, shared: bool) -> list[Problem]:
        """The clients for which no extractor fits, or not that of the others."""
        faults = {shape: self._fault(shape, ctx) for shape in {card.shape for card in cards}}
        served = [card for card in cards if not faults[card.shape]]
        return [
            *self._faulty([card for card in cards if faults[card.shape]], faults),
            *(self._misfits(served, ctx) if shared else []),
            *([] if self.own else self._misplaced_activations(served)),
        ]

    def _by_shape(self, shape: Shape) -> nn.Module:
        # The last ReLU is the paper's, for images. Elsewhere a sign means something, and from
        # standardised inputs a ReLU would take half.
        key = _activation_key(shape)
        return extractor_for(shape, self.config.width, getattr(self.config, key))

    def _fault(self, shape: Shape, ctx: Context) -> str:
        """Why inputs of such a shape have no extractor; "" if they have one."""
        try:
            if self.own:
                examine(lambda: self.initial(shape, ctx), shape)
            else:
                self.initial(shape, ctx)
        except ModelError as error:
            return str(error)
        return ""

    def _faulty(self, cards: Sequence[Card], faults: Mapping[Shape, str]) -> list[Problem]:
        """Once for each shape: it is no fault of the clients'."""
        whose = Counter(card.shape for card in cards)
        first = {card.shape: card.name for card in reversed(cards)}
        remedy = "name one of your own as method.extractor"
        return [
            Problem(
                first[shape] if count == 1 else f"{first[shape]} and {count - 1} more",
                faults[shape],
                f"fix {self.config.extractor}" if self.own else remedy,
            )
            for shape, count in whose.items()
        ]

    def _misfits(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        """Clients whose extractor would have other tensors than that of most clients."""
        tensors = {card.name: tuple(self.spec(card.shape, ctx).items()) for card in cards}
        if len(kinds := Counter(tensors.values())) < 2:
            return []
        (usual, _), *_ = kinds.most_common(1)
        of_most = self._words(next(c.shape for c in cards if tensors[c.name] == usual))
        return [
            Problem(
                card.name,
                f"its inputs are {self._words(card.shape)}, but those of most clients are "
                f"{of_most}",
                f"all clients share one extractor: bring all inputs to {of_most}",
            )
            for card in cards
            if tensors[card.name] != usual
        ]

    def _words(self, shape: Shape) -> str:
        # What else of the shape matters to the user's own extractor is unknown.
        return f"of shape {list(shape)}" if self.own else described(shape)

    def _misplaced_activations(self, cards: Sequence[Card]) -> list[Problem]:
        """Clients with inputs for which the configured activation is not meant."""
        return [
            Problem(
                card.name,
                f"method.{other} is not for {described(card.shape)}",
                f"set method.{key} instead",
            )
            for card in cards
            for key in [_activation_key(card.shape)]
            for other in {"final_activation", "final_activation_other"} - {key}
            if _is_set(self.config, other)
        ]


def _activation_key(shape: Shape) -> str:
    return "final_activation" if is_image(shape) else "final_activation_other"


def _is_set(config: ExtractorKeys, key: str) -> bool:
    return key in config.model_dump(exclude_defaults=True)
