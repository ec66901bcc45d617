"""Local SGD, the one loop in which all methods train."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import SGD

from pfedes.client import Client
from pfedes.data.augment import Augmentation
from pfedes.data.samples import Batch
from pfedes.errors import ConfigError, TrainingError
from pfedes.section import Section
from pfedes.shape import Shape, described, is_image

if TYPE_CHECKING:
    from pfedes.methods.base import Context


class TrainConfig(Section):
    """How long, with whom, and how clients learn."""

    rounds: int = Field(10, ge=1, description="T, the number of communication rounds")
    participation: float = Field(1.0, gt=0, le=1, description="C, the share of clients per round")
    epochs: int = Field(2, ge=1, description="E, local epochs of a client's model in a round")
    batch_size: int = Field(64, ge=1, description="B, samples per step")
    lr: float = Field(0.01, gt=0, description="eta_w, learning rate of clients' models")
    momentum: float = Field(0.9, ge=0, lt=1, description="of SGD")
    weight_decay: float = Field(0.001, ge=0, description="of SGD")
    clip: float = Field(50.0, ge=0, description="largest norm of a gradient; 0 = no clipping")
    augment: bool = Field(False, description="flip, crop and erase training images at random")
    optimiser: Literal["fresh", "kept"] = Field(
        "fresh", description="momentum at the start of a round: fresh | kept from the last one"
    )
    min_uploads: int = Field(1, ge=1, description="a round with fewer valid uploads has failed")
    patience: int = Field(
        0, ge=0, description="stop after so many rounds without better validation; 0 = never"
    )

    def selected(self, clients: int) -> int:
        """K, the number of clients asked in a round."""
        return max(1, round(self.participation * clients))


@dataclass(frozen=True)
class Learner:
    """A module that learns, and how fast."""

    module: nn.Module
    lr: float


def fit(
    client: Client,
    learners: Mapping[str, Learner],
    losses: Callable[[Batch], Tensor | tuple[Tensor, ...]],
    *,
    epochs: int,
    ctx: "Context",
    beside: Tensor | None = None,
    epoch_begins: Callable[[], None] | None = None,
) -> float:
    """Minimises losses over the client's training samples, all learners side by side.

    The first learner names the phase: equal phases of different methods see equal batches. Several
    losses are all taken before any step, and are added. Batches carry their rows of `beside`.
    Returns the mean of the first loss in the last epoch.
    """
    train, phase = ctx.train, next(iter(learners))
    modules = [learner.module for learner in learners.values()]
    optimisers = {name: _optimiser(learner, train) for name, learner in learners.items()}
    if train.optimiser == "kept":
        for name, optimiser in optimisers.items():
            _restore_momentum(optimiser, name, learners[name].module, client.kept)
    order = ctx.streams.torch(f"batches.{phase}", round=ctx.round, client=client.name)
    augment = None
    if train.augment:
        if not is_image(client.shape):
            raise ConfigError(only_images_augmented(client.shape))
        generator = ctx.streams.torch(f"augment.{phase}", round=ctx.round, client=client.name)
        augment = Augmentation(generator)

    def step(batch: Batch) -> float:
        for optimiser in optimisers.values():
            optimiser.zero_grad()
        with trusting_statistics(modules if len(batch) == 1 else []):
            found = losses(batch)
        values = found if isinstance(found, tuple) else (found,)
        _check_finite(values, learners, ctx)
        torch.autograd.backward(values)
        for name, optimiser in optimisers.items():
            if train.clip:
                clip_gradients(learners[name].module, train.clip)
            optimiser.step()
        return values[0].item() * len(batch)

    for module in modules:
        module.train()
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        if epoch_begins is not None:
            epoch_begins()
        for batch in client.train.shuffled(train.batch_size, order, augment, beside):
            kind = (client.architecture, phase, batch.x.shape[1:], beside is None)
            total += client.meter.count(kind, len(batch), partial(step, batch))
    if train.optimiser == "kept":
        for name, optimiser in optimisers.items():
            _keep_momentum(optimiser, name, learners[name].module, client.kept)
    return total / len(client.train)


def only_images_augmented(shape: Shape) -> str:
    return f"train.augment is for images, its inputs are {described(shape)}"


def fit_labels(client: Client, ctx: "Context") -> float:
    """The client's model learns its labels, nothing else: CE(F(x), y) for E epochs."""
    return fit(
        client,
        {"model": Learner(client.model, ctx.train.lr)},
        lambda batch: F.cross_entropy(client.model(batch.x), batch.y),
        epochs=ctx.train.epochs,
        ctx=ctx,
    )


@torch.no_grad()
def survey(
    client: Client, model: nn.Module, see: Callable[[Batch], None], *, batch_size: int
) -> None:
    """One pass over the training samples as they are, without learning; its cost is counted."""
    was_training = model.training
    model.eval()
    try:
        for batch in client.train.in_order(batch_size):
            kind = (client.architecture, "survey", batch.x.shape[1:])
            client.meter.count(kind, len(batch), partial(see, batch))
    finally:
        model.train(was_training)


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter of the model gets a gradient; one may still pass through it to its input.

    The model is in evaluation mode meanwhile: running statistics and dropout rest too.
    """
    was_training = model.training
    trainable = [p for p in model.parameters() if p.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    model.eval()
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
        model.train(was_training)


def mixes_samples(model: nn.Module) -> bool:
    """Whether joined batches leave another trace than separate ones.

    Batch normalisation makes a sample's output depend on its batch. Where instance normalisation
    keeps running statistics, these do.
    """
    return any(
        isinstance(module, _BatchNorm)
        or (isinstance(module, _NormBase) and module.track_running_stats)
        for module in model.modules()
    )


@contextmanager
def statistics_resting(model: nn.Module) -> Iterator[None]:
    """Normalisation by the batch itself, without a trace in the running statistics."""
    norms = [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.track_running_stats = False
        norm.momentum = 0.0  # instance normalisation goes by this alone
    try:
        yield
    finally:
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.track_running_stats = True
            norm.momentum = momentum


@contextmanager
def trusting_statistics(models: Sequence[nn.Module]) -> Iterator[None]:
    """Batch normalisation by the running statistics, for a batch of one sample.

    By its own mean, a single sample would be nothing but that mean; torch refuses to do so.
    """
    modules = (module for model in models for module in model.modules())
    norms = [m for m in modules if isinstance(m, _BatchNorm) and m.training]
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()


def clip_gradients(module: nn.Module, largest: float) -> None:
    """clip_grad_norm_, but gradients that are small enough are not multiplied by 1."""
    norm = get_total_norm([p.grad for p in module.parameters() if p.grad is not None])
    if not norm + 1e-6 < largest:  # torch adds as much; NaN must pass on
        clip_grads_with_norm_(module.parameters(), largest, norm)


def _check_finite(
    values: tuple[Tensor, ...], learners: Mapping[str, Learner], ctx: "Context"
) -> None:
    if not all(math.isfinite(value.item()) for value in values):
        rates = ", ".join(f"{name} {learner.lr:g}" for name, learner in learners.items())
        raise TrainingError(
            f"the loss is no longer finite in round {ctx.round} (learning rate: {rates})"
        )


def _optimiser(learner: Learner, train: TrainConfig) -> SGD:
    return SGD(
        learner.module.parameters(),
        lr=learner.lr,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        fused=True,
    )


def _restore_momentum(
    optimiser: SGD, name: str, module: nn.Module, kept: dict[str, Tensor]
) -> None:
    for parameter_name, parameter in module.named_parameters():
        if (buffer := kept.get(f"momentum.{name}.{parameter_name}")) is not None:
            # Laid out in memory as the parameter is, which the file does not record.
            buffer = torch.empty_like(parameter).copy_(buffer)
            optimiser.state[parameter]["momentum_buffer"] = buffer


def _keep_momentum(optimiser: SGD, name: str, module: nn.Module, kept: dict[str, Tensor]) -> None:
    for parameter_name, parameter in module.named_parameters():
        if (buffer := optimiser.state[parameter].get("momentum_buffer")) is not None:
            kept[f"momentum.{name}.{parameter_name}"] = buffer
