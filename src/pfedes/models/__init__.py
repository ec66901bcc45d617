"""The private models of clients, by name, and the extractor they share."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import AfterValidator, BeforeValidator, Field
from torch import nn

from pfedes.core.shapes import Shape
from pfedes.errors import ConfigError, unknown
from pfedes.models.cnn import CNN, REPRESENTATION
from pfedes.section import Section

M = TypeVar("M", bound=nn.Module)

MODELS: dict[str, Callable[..., CNN]] = {
    "cnn1": partial(CNN, conv2=32, fc1=2000),
    "cnn2": partial(CNN, conv2=16, fc1=2000),
    "cnn3": partial(CNN, conv2=32, fc1=1000),
    "cnn4": partial(CNN, conv2=32, fc1=800),
    "cnn5": partial(CNN, conv2=32, fc1=500),
}


def _known(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in MODELS:
            raise ValueError(unknown("model", name, MODELS))
    return names


def _a_list(names: Any) -> Any:
    if isinstance(names, str):
        raise ValueError(f'expected a list such as ["cnn1", "cnn5"]; known: {", ".join(MODELS)}')
    return names


class ModelsConfig(Section):
    """Which client has which architecture. A pool of one makes the federation homogeneous."""

    pool: Annotated[tuple[str, ...], BeforeValidator(_a_list), AfterValidator(_known)] = Field(
        tuple(MODELS), min_length=1, description="the architectures that clients may have"
    )
    assign: Literal["random", "round_robin"] = Field(
        "random", description="random (uniformly, the paper's) | round_robin"
    )
    init: Literal["independent", "shared"] = Field(
        "independent",
        description="independent (every client its own) | shared (one per architecture)",
    )
    table: tuple[str, ...] = Field(
        (), description="natural only: file.py:function for each site, in turn; () = the pool"
    )


def channels_last(model: M) -> M:
    """Lays a model out in memory the way convolutions are fastest; the numbers stay the same."""
    # torch's own annotations do not know this form of the call.
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def build_model(name: str, classes: int, shape: Shape, representation: int = REPRESENTATION) -> CNN:
    """A freshly initialised model of the given architecture."""
    if name not in MODELS:
        raise ConfigError(unknown("model", name, MODELS))
    return MODELS[name](classes, shape, representation=representation)
