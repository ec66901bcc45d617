"""FedMRL: a shared small model runs beside everybody's own, and both representations are fused.

Yi et al., Federated Model Heterogeneous Matryoshka Representation Learning, 2024. The small head
reads the first numbers of the fused representation, the private head all of them.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from pfedes.core.aggregation import Averaging
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State, under, within
from pfedes.core.samples import Batch
from pfedes.core.training import Learner, fit, label_loss
from pfedes.core.wire import WireSpec, required
from pfedes.methods import _shared_model as shared_model
from pfedes.methods._shared_model import SharedModel
from pfedes.methods.base import (
    Method,
    MethodConfig,
    Problem,
    Received,
    Upload,
    Wire,
    averaged,
    spec_of,
)
from pfedes.models.cnn import CNN
from pfedes.models.head import head_of, represent

SMALL, PROJECTOR = "small.", "projector."


class FedMRLConfig(MethodConfig):
    """Hyper-parameters of FedMRL."""

    name: Literal["fedmrl"] = "fedmrl"
    representation: int = Field(
        100, ge=1, description="d_1, width of the small model's representation"
    )
    small_weight: float = Field(1.0, ge=0, description="m_1, weight of the small head's loss")
    shared_model: SharedModel = Field(
        "cnn5", description="the small model: auto (cnn1 or cnn5) or a model's name"
    )
    averaging: Averaging = Field("weighted", description="weighted (by samples) | uniform")
    projector: Literal["kept", "random"] = Field(
        "kept", description="projector after a round: kept | random (as drawn, as in HtFLlib)"
    )


class FedMRL(Method[FedMRLConfig]):
    """The small model travels; private models and projectors stay."""

    Config = FedMRLConfig
    needs = frozenset({"width"})

    @property
    def averages_parameters(self) -> bool:
        return True

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        width = self.config.representation
        return shared_model.check_shapes(cards) + [
            Problem(
                card.name,
                f"its representation has {card.width} numbers, the small model's {width}",
                "the small one is part of it: set method.representation to no more",
            )
            for card in cards
            if (card.width or 0) < width
        ]

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        return State(self._small(cards[0], ctx).state_dict())

    def prepare(self, client: Client, ctx: Context) -> None:
        """Creates the projector, which never leaves, and the small model that it is used with."""
        small = self._small(client, ctx)
        with ctx.streams.ambient("init.projector", client=client.name):
            projector = _projector(client.model, small)
        client.kept |= under(SMALL, small.state_dict()) | under(PROJECTOR, projector.state_dict())

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload(state.tensors)

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        fused = self._fused(client, download.tensors, ctx)
        lr, kept = ctx.train.lr, self.config.projector == "kept"
        projector = fused.projector
        loss = fit(
            client,
            {
                "model": Learner(client.model, lr),
                "small": Learner.of_received(fused.small, lr),
                # One that is lost after the round loses its momentum, too.
                "projector": Learner(projector, lr) if kept else Learner.of_received(projector, lr),
            },
            lambda batch: nested_loss(fused, batch, self.config.small_weight),
            epochs=ctx.train.epochs,
            ctx=ctx,
        )
        client.kept |= under(SMALL, fused.small.state_dict())
        if kept:
            client.kept |= under(PROJECTOR, projector.state_dict())
        return Upload(loss, fused.small.state_dict())

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        return State(averaged(uploads, ctx, self.config.averaging))

    def personal(self, client: Client, download: Payload | None, ctx: Context) -> nn.Module:
        """Joins both models: the small one is that of the last training, or the present one."""
        small = within(SMALL, client.kept) if download is None else download.tensors
        return self._fused(client, small, ctx)

    def allowed(self, card: Card, ctx: Context) -> Wire:
        with torch.device("meta"):  # somebody may ask for a width that fills the memory
            small = WireSpec((required(spec_of(self._small(card, ctx))),))
        return Wire(down=small, up=small)

    def _small(self, of: Card | Client, ctx: Context) -> CNN:
        width = self.config.representation
        return shared_model.build(self.config.shared_model, of.shape, ctx, width)

    def _fused(self, client: Client, small: dict[str, Tensor], ctx: Context) -> "Fused":
        """The client's model and projector with a small model of these weights."""
        beside = self._small(client, ctx)
        fused = Fused(client.model, beside, _projector(client.model, beside)).to(client.device)
        fused.small.load_state_dict(small)
        fused.projector.load_state_dict(within(PROJECTOR, client.kept))
        return fused


class Fused(nn.Module):
    """Classifies what a projector makes of the representations of two models."""

    def __init__(self, model: nn.Module, small: CNN, projector: nn.Linear) -> None:
        super().__init__()
        self.model = model
        self.small = small
        self.projector = projector

    def represent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The fused representation, and the logits of the private head."""
        beside = self.small.represent(x)
        return represent(self.model, x, lambda own: self.projector(torch.cat([beside, own], dim=1)))

    def forward(self, x: Tensor) -> Tensor:
        return self.represent(x)[1]


def nested_loss(fused: Fused, batch: Batch, small_weight: float) -> Tensor:
    """CE of the private head on all numbers, and of the small head on the first ones."""
    rep, logits = fused.represent(batch.x)
    head = fused.small.fc3
    nested = label_loss(head(rep[:, : head.in_features]), batch)
    return label_loss(logits, batch) + small_weight * nested


def _projector(model: nn.Module, small: CNN) -> nn.Linear:
    own = head_of(model).in_features
    return nn.Linear(small.fc3.in_features + own, own)
