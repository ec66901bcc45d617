"""FML, Federated Mutual Learning: a shared small model learns beside everybody's own.

Shen et al., Federated Mutual Learning, 2020. The shared model is called the meme.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from pfedes.core.aggregation import Averaging
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State
from pfedes.core.samples import Batch
from pfedes.core.training import Learner, fit, label_loss
from pfedes.core.wire import WireSpec, required
from pfedes.methods import _shared_model as shared_model
from pfedes.methods._distillation import kl_from
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


class FMLConfig(MethodConfig):
    """Hyper-parameters of FML."""

    name: Literal["fml"] = "fml"
    alpha: float = Field(0.5, gt=0, le=1, description="alpha, weight of the labels for own models")
    beta: float = Field(0.5, gt=0, le=1, description="beta, weight of the labels for the meme")
    shared_model: SharedModel = Field(
        "auto", description="the meme: auto (cnn1 or cnn5) or a model's name"
    )
    averaging: Averaging = Field("weighted", description="weighted (by samples) | uniform")


class FML(Method[FMLConfig]):
    """Both models learn from the labels and from each other; the meme travels."""

    Config = FMLConfig

    @property
    def averages_parameters(self) -> bool:
        return True

    @property
    def additive(self) -> bool:
        return True

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        return shared_model.check_shapes(cards)

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        return State(self._meme(cards[0], ctx).state_dict())

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload(state.tensors)

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        meme = self._meme(client, ctx).to(client.device)
        meme.load_state_dict(download.tensors)
        lr = ctx.train.lr
        loss = fit(
            client,
            {"model": Learner(client.model, lr), "meme": Learner.of_received(meme, lr)},
            lambda batch: mutual_losses(client.model, meme, batch, self.config),
            epochs=ctx.train.epochs,
            ctx=ctx,
        )
        return Upload(loss, meme.state_dict())

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        return State(averaged(uploads, ctx, self.config.averaging))

    def allowed(self, card: Card, ctx: Context) -> Wire:
        meme = required(spec_of(self._meme(card, ctx)))
        return Wire(down=WireSpec((meme,)), up=WireSpec((meme,)))

    def _meme(self, of: Card | Client, ctx: Context) -> nn.Module:
        return shared_model.build(self.config.shared_model, of.shape, ctx)


def mutual_losses(
    model: nn.Module, meme: nn.Module, batch: Batch, config: FMLConfig
) -> tuple[Tensor, Tensor]:
    """alpha CE + (1 - alpha) KL(meme || model), and the same the other way round with beta."""
    own, shared = model(batch.x), meme(batch.x)

    def loss(student: Tensor, teacher: Tensor, weight: float) -> Tensor:
        labels = label_loss(student, batch)
        if weight == 1:
            return labels
        return weight * labels + (1 - weight) * kl_from(teacher, student)

    return loss(own, shared, config.alpha), loss(shared, own, config.beta)
