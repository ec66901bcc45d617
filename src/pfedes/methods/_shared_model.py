"""The small model that FML, FedKD and FedMRL share beside everybody's own."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator

from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.shapes import Shape
from pfedes.errors import unknown
from pfedes.methods.base import Problem
from pfedes.models import MODELS, build_model, channels_last
from pfedes.models.cnn import CNN, REPRESENTATION


def _known(name: str) -> str:
    if name != "auto" and name not in MODELS:
        raise ValueError(unknown("model", name, ["auto", *MODELS]))
    return name


SharedModel = Annotated[str, AfterValidator(_known)]


def architecture(chosen: str, pool: Sequence[str]) -> str:
    """`auto` follows the paper: CNN-1 where all clients have it, else CNN-5."""
    if chosen != "auto":
        return chosen
    return "cnn1" if set(pool) == {"cnn1"} else "cnn5"


def build(chosen: str, shape: Shape, ctx: Context, representation: int = REPRESENTATION) -> CNN:
    """The shared model with the initial weights that all sides agree on."""
    name = architecture(chosen, ctx.pool)
    with ctx.streams.ambient("init.shared"):
        return channels_last(build_model(name, ctx.classes, shape, representation))


def check_shapes(cards: Sequence[Card]) -> list[Problem]:
    """One model for all can take one shape of input only."""
    first = cards[0]
    return [
        Problem(
            card.name,
            f"its inputs are {list(card.shape)}, those of {first.name} are {list(first.shape)}",
            "the shared model takes one shape: bring all inputs to it",
        )
        for card in cards
        if card.shape != first.shape
    ]
