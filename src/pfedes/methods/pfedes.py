"""pFedES: personalized federated learning by sharing a small feature extractor.

Yi, Yu, Wang, Liu: pFedES: Model Heterogeneous Personalized Federated Learning with Feature
Extractor Sharing, 2023 (arXiv 2311.06879), Algorithm 1. Symbols: F is a client's private model
with parameters w, G the shared extractor with parameters theta, S the selected clients.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import AfterValidator, Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes.client import Card, Client
from pfedes.data.samples import Batch
from pfedes.methods.base import (
    Context,
    Method,
    MethodConfig,
    Problem,
    Received,
    Upload,
    Wire,
    averaged,
    check_augmentation,
)
from pfedes.methods.extractors import BY_SHAPE, Extractors, unused_keys, well_named
from pfedes.models.extractor import Activation
from pfedes.payload import Number, Payload, State, WireSpec, required
from pfedes.shape import is_image
from pfedes.training import Learner, fit, frozen, mixes_samples, statistics_resting, survey

REMEMBERED_BYTES = 2**28
"""A client whose enhanced inputs take more computes them anew in every epoch."""


class PFedESConfig(MethodConfig):
    """Hyper-parameters of pFedES."""

    name: Literal["pfedes"] = "pfedes"
    mu: float = Field(0.1, gt=0, le=0.5, description="mu, weight of the loss on enhanced data")
    extractor_epochs: int = Field(5, ge=1, description="E_fe, epochs of the extractor in a round")
    extractor_lr: float = Field(0.01, gt=0, description="eta_theta, its learning rate")
    extractor: Annotated[str, AfterValidator(well_named)] = Field(
        BY_SHAPE,
        description="auto (by the shape of inputs) | package.module:function of your own",
    )
    width: int = Field(8, ge=1, description="channels, or numbers, between its two layers")
    final_activation: Activation = Field(
        "relu", description="of the extractor of images: relu | none | tanh"
    )
    final_activation_other: Activation = Field(
        "none", description="of that of signals, tables and embeddings: relu | none | tanh"
    )
    sharing: Literal["global", "local", "frozen"] = Field(
        "global",
        description="global (the method) | local (own extractor, nothing travels) | "
        "frozen (never trained: the random one, or that of start_from)",
    )
    start_from: str = Field(
        "", description="a file with the first extractor, as a server stores it; '' = a random one"
    )

    @model_validator(mode="after")
    def _all_of_use(self) -> Self:
        if unused := unused_keys(self):
            raise ValueError(f"an extractor of your own has no use for {', '.join(unused)}")
        return self


class PFedES(Method[PFedESConfig]):
    """Private models learn from raw and enhanced inputs; only the extractor travels."""

    Config = PFedESConfig

    def __init__(self, config: PFedESConfig | None = None, **hyper_parameters: Any) -> None:
        super().__init__(config, **hyper_parameters)
        self.extractors = Extractors(self.config)

    @property
    def averages_parameters(self) -> bool:
        return self.config.sharing == "global"

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        shared = self.config.sharing == "global"
        return self.extractors.check(cards, ctx, shared=shared) + check_augmentation(cards, ctx)

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        return State(self.extractors.first(cards[0].shape, ctx))

    def prepare(self, client: Client, ctx: Context) -> None:
        if self.config.sharing != "global":
            client.kept |= self.extractors.first(client.shape, ctx)

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload(state.tensors if self.config.sharing == "global" else {})

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        shared = self.config.sharing == "global"
        extractor = self.extractors.new(client.shape).to(client.device)  # theta_k <- theta
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
        shared = self.config.sharing == "global"
        theta = required(self.extractors.spec(card.shape, ctx) if shared else {})
        return Wire(
            down=WireSpec((theta,)), up=WireSpec((theta,), {"zeros": Number(float, most=1)})
        )


def enhanced_once(client: Client, extractor: nn.Module, ctx: Context) -> Tensor | None:
    """G(x) of all training samples, where several epochs ask for the same and memory allows it."""
    shape = (len(client.train), *client.shape)
    if ctx.train.augment or ctx.train.epochs == 1 or 4 * math.prod(shape) > REMEMBERED_BYTES:
        return None
    layout = torch.channels_last if is_image(client.shape) else torch.contiguous_format
    enhanced = torch.empty(shape, device=client.device, memory_format=layout)
    places = iter(enhanced.split(ctx.train.batch_size))
    survey(
        client,
        extractor,
        lambda batch: next(places).copy_(extractor(batch.x)),
        batch_size=ctx.train.batch_size,
    )
    return enhanced


def model_loss(model: nn.Module, extractor: nn.Module, batch: Batch, mu: float) -> Tensor:
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
    model: nn.Module, extractor: nn.Module, batch: Batch, zeros: "ShareOfZeros"
) -> Tensor:
    """CE(F(G(x)), y), eq. 7-8."""
    enhanced = extractor(batch.x)
    zeros.see(enhanced)
    return F.cross_entropy(model(enhanced), batch.y)


class ShareOfZeros:
    """How much of the enhanced inputs is exactly zero: near 1, the last ReLU has died."""

    def __init__(self) -> None:
        self.zeros = self.all = 0

    def see(self, enhanced: Tensor) -> None:
        self.all += enhanced.numel()
        self.zeros += int((enhanced == 0).sum())  # quicker than torch.count_nonzero

    def share(self) -> float:
        return self.zeros / self.all if self.all else 0.0
