"""pFedES: personalized federated learning by sharing a small feature extractor.

Yi, Yu, Wang, Liu: pFedES: Model Heterogeneous Personalized Federated Learning with Feature
Extractor Sharing, 2023 (arXiv 2311.06879), Algorithm 1. Symbols: F is a client's private model
with parameters w, G the shared extractor with parameters theta, S the selected clients.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes.client import Card, Client
from pfedes.data.samples import Batch
from pfedes.methods.base import Context, Method, MethodConfig, Received, Upload, Wire, averaged
from pfedes.models import channels_last
from pfedes.models.extractor import Activation, Extractor
from pfedes.payload import Number, Payload, State, TensorSpec, WireSpec, required
from pfedes.training import Learner, fit, frozen, mixes_samples, statistics_resting, survey

REMEMBERED_BYTES = 2**28
"""A client whose enhanced images take more computes them anew in every epoch."""


class PFedESConfig(MethodConfig):
    """Hyper-parameters of pFedES."""

    name: Literal["pfedes"] = "pfedes"
    mu: float = Field(0.1, gt=0, le=0.5, description="mu, weight of the loss on enhanced data")
    extractor_epochs: int = Field(5, ge=1, description="E_fe, epochs of the extractor in a round")
    extractor_lr: float = Field(0.01, gt=0, description="eta_theta, its learning rate")
    width: int = Field(8, ge=1, description="channels between its two convolutions")
    final_activation: Activation = Field("relu", description="of the extractor: relu | none | tanh")
    sharing: Literal["global", "local", "frozen"] = Field(
        "global",
        description="global (the method) | local (own extractor, nothing travels) | "
        "frozen (the random one, never trained)",
    )


class PFedES(Method[PFedESConfig]):
    """Private models learn from raw and enhanced images; only the extractor travels."""

    Config = PFedESConfig

    @property
    def averages_parameters(self) -> bool:
        return self.config.sharing == "global"

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        return State(self._initial(ctx).state_dict())

    def prepare(self, client: Client, ctx: Context) -> None:
        if self.config.sharing != "global":
            client.kept |= self._initial(ctx).state_dict()

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload(state.tensors if self.config.sharing == "global" else {})

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        shared = self.config.sharing == "global"
        extractor = self._extractor(ctx).to(client.device)  # theta_k <- theta
        theta = download.tensors if shared else client.kept
        extractor.load_state_dict({name: theta[name] for name in extractor.state_dict()})

        # Freeze the extractor, train the model (eq. 3-6).
        with frozen(extractor):
            loss = fit(
                client,
                {"model": Learner(client.model, ctx.train.lr)},
                lambda batch: model_loss(client.model, extractor, batch, self.config.mu),
                epochs=ctx.train.epochs,
                ctx=ctx,
                beside=enhanced_once(client, extractor, ctx),
            )
        if self.config.sharing == "frozen":
            return Upload(loss, meta={"zeros": 0.0})

        # Freeze the model, train the extractor (eq. 7-9).
        zeros = ShareOfZeros()
        with frozen(client.model):
            fit(
                client,
                {"extractor": Learner(extractor, self.config.extractor_lr)},
                lambda batch: extractor_loss(client.model, extractor, batch, zeros),
                epochs=self.config.extractor_epochs,
                ctx=ctx,
            )
        if not shared:
            client.kept |= extractor.state_dict()
        return Upload(loss, extractor.state_dict() if shared else {}, {"zeros": zeros.share()})

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        if self.config.sharing != "global":
            return state
        return State(averaged(uploads, ctx))  # eq. 10

    def allowed(self, card: Card, ctx: Context) -> Wire:
        with torch.device("meta"):  # shapes only: nothing is allocated, nothing drawn
            shapes = self._extractor(ctx).state_dict() if self.config.sharing == "global" else {}
        theta = required({name: TensorSpec.of(tensor) for name, tensor in shapes.items()})
        return Wire(
            down=WireSpec((theta,)), up=WireSpec((theta,), {"zeros": Number(float, most=1)})
        )

    def _extractor(self, ctx: Context) -> Extractor:
        config = self.config
        return channels_last(Extractor(ctx.channels, config.width, config.final_activation))

    def _initial(self, ctx: Context) -> Extractor:
        with ctx.streams.ambient("init.extractor"):
            return self._extractor(ctx)


def enhanced_once(client: Client, extractor: Extractor, ctx: Context) -> Tensor | None:
    """G(x) of all training samples, where several epochs ask for the same and memory allows it."""
    shape = (len(client.train), *client.shape)
    if ctx.train.augment or ctx.train.epochs == 1 or 4 * math.prod(shape) > REMEMBERED_BYTES:
        return None
    enhanced = torch.empty(shape, device=client.device, memory_format=torch.channels_last)
    places = iter(enhanced.split(ctx.train.batch_size))
    survey(
        client,
        extractor,
        lambda batch: next(places).copy_(extractor(batch.x)),
        batch_size=ctx.train.batch_size,
    )
    return enhanced


def model_loss(model: nn.Module, extractor: Extractor, batch: Batch, mu: float) -> Tensor:
    """mu * CE(F(G(x)), y) + (1 - mu) * CE(F(x), y), eq. 3-5."""
    with torch.no_grad():
        enhanced = extractor(batch.x) if batch.beside is None else batch.beside
    if mixes_samples(model):
        raw_logits = model(batch.x)  # the only pass that running statistics may learn from
        with statistics_resting(model):
            enhanced_logits = model(enhanced)
    else:
        # One pass over both halves gives the same and is faster.
        enhanced_logits, raw_logits = model(torch.cat([enhanced, batch.x])).chunk(2)
    return mu * F.cross_entropy(enhanced_logits, batch.y) + (1 - mu) * F.cross_entropy(
        raw_logits, batch.y
    )


def extractor_loss(
    model: nn.Module, extractor: Extractor, batch: Batch, zeros: "ShareOfZeros"
) -> Tensor:
    """CE(F(G(x)), y), eq. 7-8."""
    enhanced = extractor(batch.x)
    zeros.see(enhanced)
    return F.cross_entropy(model(enhanced), batch.y)


class ShareOfZeros:
    """How much of the enhanced images is exactly zero: near 1, the last ReLU has died."""

    def __init__(self) -> None:
        self.zeros = self.all = 0

    def see(self, enhanced: Tensor) -> None:
        self.all += enhanced.numel()
        self.zeros += int((enhanced == 0).sum())  # quicker than torch.count_nonzero

    def share(self) -> float:
        return self.zeros / self.all if self.all else 0.0
