"""pFedES: personalized federated learning by sharing a small feature extractor.

Yi, Yu, Wang, Liu: pFedES: Model Heterogeneous Personalized Federated Learning with Feature
Extractor Sharing, 2023 (arXiv 2311.06879), Algorithm 1. Symbols: F is a client's private model
with parameters w, G the shared extractor with parameters theta, S the selected clients.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import Tensor, nn

from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State
from pfedes.core.precision import computing
from pfedes.core.samples import Batch
from pfedes.core.shapes import is_image
from pfedes.core.training import (
    Learner,
    fit,
    frozen,
    label_loss,
    mixes_samples,
    statistics_resting,
    survey,
)
from pfedes.core.wire import Group, Number, WireSpec, required
from pfedes.methods._extractors import BY_SHAPE, Extractors, unused_keys, well_named
from pfedes.methods._firing import examined
from pfedes.methods.base import (
    Method,
    MethodConfig,
    Problem,
    Received,
    Upload,
    Wire,
    averaged,
    check_augmentation,
)
from pfedes.models.extractor import Activation
from pfedes.models.views import BothViews

REMEMBERED_BYTES = 2**28
"""A client whose enhanced inputs take more computes them again in every epoch."""


class PFedESConfig(MethodConfig):
    """Hyper-parameters of pFedES."""

    local_epochs = ("extractor_epochs",)

    name: Literal["pfedes"] = "pfedes"
    mu: float = Field(0.1, gt=0, le=0.5, description="mu, weight of the loss on enhanced data")
    extractor_epochs: int = Field(5, ge=1, description="E_fe, epochs of the extractor in a round")
    extractor_lr: float = Field(0.01, gt=0, description="eta_theta, learning rate of the extractor")
    extractor: Annotated[str, BeforeValidator(well_named)] = Field(
        BY_SHAPE,
        description="auto (by the shape of inputs) | package.module:function, your own extractor",
    )
    width: int = Field(
        8, ge=1, description="channels, or numbers, between the two layers of the extractor"
    )
    final_activation: Activation = Field(
        "relu", description="last activation of an extractor of images: relu | none | tanh"
    )
    final_activation_other: Activation = Field(
        "none",
        description="last activation of an extractor of signals, tables or embeddings: "
        "relu | none | tanh",
    )
    sharing: Literal["global", "local", "frozen"] = Field(
        "global",
        description="global (the method) | local (own extractor, nothing travels) | "
        "frozen (never trained: the random one, or that of start_from)",
    )
    start_from: str = Field(
        "", description="a file with the first extractor, as a server stores it; '' = a random one"
    )
    phase1: Literal["both", "drawn"] = Field(
        "both",
        description="the model sees every sample both raw and enhanced (the paper) | drawn "
        "(enhanced with probability mu, else raw: half the cost)",
    )
    extractor_share: float = Field(
        1.0, gt=0, le=1, description="share of local samples that an extractor's epoch sees"
    )
    inference: Literal["raw", "both"] = Field(
        "raw",
        description="predict with F(x) | with the mean softmax of F(x) and F(G(x)), own G",
    )
    residual: bool = Field(False, description="the extractor adds to its input: x + G(x)")

    @model_validator(mode="after")
    def _all_of_use(self) -> Self:
        if unused := unused_keys(self):
            raise ValueError(f"your own extractor does not use {', '.join(unused)}: leave it out")
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

    @property
    def additive(self) -> bool:
        return self.averages_parameters

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        one_for_all = self.config.sharing == "global" or bool(self.config.start_from)
        return self.extractors.check(cards, ctx, shared=one_for_all) + check_augmentation(
            cards, ctx
        )

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        return State(self.extractors.first(cards[0].shape, ctx))

    def prepare(self, client: Client, ctx: Context) -> None:
        if self.config.sharing != "global":
            client.kept |= self.extractors.initial(client.shape, ctx).state_dict()

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        # The file of start_from lies where the run was configured: a client's own extractor
        # begins with what the server read, whatever machine the client trains on.
        first = bool(self.config.start_from) and card.accepted == 0
        return Payload(state.tensors if self.config.sharing == "global" or first else {})

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        shared = self.config.sharing == "global"
        extractor = self.extractors.new(client.shape).to(client.device)  # theta_k <- theta
        theta = download.tensors if shared else {**client.kept, **download.tensors}
        extractor.load_state_dict({name: theta[name] for name in extractor.state_dict()})

        rare = examined(client, extractor, ctx) if shared else None

        # Freeze the extractor, train the model (eq. 3-6).
        draw = ctx.streams.torch("draw.phase1", round=ctx.round, client=client.name)

        def loss_of_model(batch: Batch) -> Tensor:
            if self.config.phase1 == "drawn":
                return drawn_loss(client.model, extractor, batch, self.config.mu, draw)
            return model_loss(client.model, extractor, batch, self.config.mu)

        with frozen(extractor):
            loss = fit(
                client,
                {"model": Learner(client.model, ctx.train.lr)},
                loss_of_model,
                epochs=ctx.train.epochs,
                ctx=ctx,
                beside=enhanced_once(client, extractor, ctx),
            )
        if self.config.sharing == "frozen":
            client.kept |= download.tensors
            return Upload(loss, meta={"zeros": 0.0})

        # Freeze the model, train the extractor (eq. 7-9).
        zeros = ShareOfZeros()
        learner = Learner.of_received if shared else Learner
        with frozen(client.model):
            fit(
                client,
                {"extractor": learner(extractor, self.config.extractor_lr)},
                lambda batch: extractor_loss(client.model, extractor, batch, zeros),
                epochs=self.config.extractor_epochs,
                ctx=ctx,
                share=self.config.extractor_share,
            )
        if rare is not None:
            rare.put_back(extractor)
        if not shared or self.config.inference == "both":
            client.kept |= extractor.state_dict()
        return Upload(loss, extractor.state_dict() if shared else {}, {"zeros": zeros.share()})

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        if self.config.sharing != "global":
            return state
        return State(averaged(uploads, ctx))  # eq. 10

    def personal(self, client: Client, download: Payload | None, ctx: Context) -> nn.Module:
        """With inference = "both", also predicts with the extractor of the client's last round."""
        if self.config.inference == "raw":
            return client.model
        extractor = self.extractors.new(client.shape).to(client.device)
        own = {name: client.kept[name] for name in extractor.state_dict() if name in client.kept}
        if not own:  # before its first round
            return client.model
        extractor.load_state_dict(own)
        return BothViews(client.model, extractor)

    def allowed(self, card: Card, ctx: Context) -> Wire:
        theta, nothing = self.extractors.spec(card.shape, ctx), required({})
        zeros = {"zeros": Number(float, most=1)}
        if self.config.sharing == "global":
            return Wire(WireSpec((required(theta),)), WireSpec((required(theta),), zeros))
        return Wire(WireSpec((Group(({}, theta)),)), WireSpec((nothing,), zeros))


def enhanced_once(client: Client, extractor: nn.Module, ctx: Context) -> Tensor | None:
    """G(x) of all training samples, where several epochs ask for the same and memory allows it."""
    shape = (len(client.train), *client.shape)
    if ctx.train.augment or ctx.train.epochs == 1 or 4 * math.prod(shape) > REMEMBERED_BYTES:
        return None
    layout = torch.channels_last if is_image(client.shape) else torch.contiguous_format
    enhanced = torch.empty(shape, device=client.device, memory_format=layout)
    places = iter(enhanced.split(ctx.train.batch_size))
    with computing(client.precision or ctx.train.precision, client.device):
        survey(
            client,
            extractor,
            lambda batch: next(places).copy_(extractor(batch.x)),
            batch_size=ctx.train.batch_size,
        )
    return enhanced


def model_loss(model: nn.Module, extractor: nn.Module, batch: Batch, mu: float) -> Tensor:
    """mu * CE(F(G(x)), y) + (1 - mu) * CE(F(x), y), eq. 3-5."""
    enhanced = _enhanced(extractor, batch)
    if mixes_samples(model):
        raw_logits = model(batch.x)  # the only pass that running statistics may learn from
        with statistics_resting(model):
            enhanced_logits = model(enhanced)
    else:
        # One pass over both halves gives the same and is faster.
        enhanced_logits, raw_logits = model(torch.cat([enhanced, batch.x])).chunk(2)
    return mu * label_loss(enhanced_logits, batch) + (1 - mu) * label_loss(raw_logits, batch)


def drawn_loss(
    model: nn.Module, extractor: nn.Module, batch: Batch, mu: float, draw: torch.Generator
) -> Tensor:
    """CE(F(z), y), where z is G(x) with probability mu and x otherwise.

    Its expectation, and that of its gradient, is the loss of eq. 3-5. Where samples of a batch
    influence each other, that holds only if all of them are enhanced or none: there the batch is
    drawn as a whole, and running statistics learn from raw batches alone.
    """
    enhanced = _enhanced(extractor, batch)
    if mixes_samples(model):
        if torch.rand((), generator=draw).item() >= mu:
            return label_loss(model(batch.x), batch)
        with statistics_resting(model):
            return label_loss(model(enhanced), batch)
    chosen = (torch.rand(len(batch), generator=draw) < mu).to(batch.x.device)
    along = (-1, *[1] * (batch.x.dim() - 1))
    return label_loss(model(torch.where(chosen.view(along), enhanced, batch.x)), batch)


def _enhanced(extractor: nn.Module, batch: Batch) -> Tensor:
    """G(x), of all samples even if few are drawn: a step then costs the same every time."""
    if batch.beside is not None:
        return batch.beside
    with torch.no_grad():
        enhanced: Tensor = extractor(batch.x)
    return enhanced


def extractor_loss(
    model: nn.Module, extractor: nn.Module, batch: Batch, zeros: "ShareOfZeros"
) -> Tensor:
    """CE(F(G(x)), y), eq. 7-8."""
    enhanced = extractor(batch.x)
    zeros.see(enhanced)
    return label_loss(model(enhanced), batch)


class ShareOfZeros:
    """How much of the enhanced inputs is exactly zero: near 1, the last ReLU has died."""

    def __init__(self) -> None:
        self.zeros = self.all = 0

    def see(self, enhanced: Tensor) -> None:
        self.all += enhanced.numel()
        self.zeros += int((enhanced == 0).sum())  # quicker than torch.count_nonzero

    def share(self) -> float:
        return self.zeros / self.all if self.all else 0.0
