"""Local SGD, the one loop in which all methods train."""

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import SGD

from pfedes.core.augment import Augmentation
from pfedes.core.balance import balanced_weights
from pfedes.core.client import Client
from pfedes.core.precision import computing
from pfedes.core.samples import Batch
from pfedes.core.shapes import Shape, described, is_image
from pfedes.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from pfedes.core.context import Context
from pfedes.core.train_config import TrainConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Learner:
    """A module to train with `fit`.

    Attributes:
        module: The module.
        lr: Its learning rate.
        received: Names of parameters that a download has just overwritten. Their momentum starts
            at zero in every round, since it belongs to other values.
    """

    module: nn.Module
    lr: float
    received: Collection[str] = ()

    @classmethod
    def of_received(cls, module: nn.Module, lr: float) -> "Learner":
        """Returns a learner whose parameters all came with this round's download.

        Args:
            module: The module.
            lr: Its learning rate.
        """
        return cls(module, lr, frozenset(name for name, _ in module.named_parameters()))


def fit(
    client: Client,
    learners: Mapping[str, Learner],
    losses: Callable[[Batch], Tensor | tuple[Tensor, ...]],
    *,
    epochs: int,
    ctx: "Context",
    beside: Tensor | None = None,
    epoch_begins: Callable[[], None] | None = None,
    share: float = 1.0,
) -> float:
    """Trains modules side by side on a client's training samples, and counts the FLOPs.

    Optimiser, batch size, clipping, augmentation and precision are those of `ctx.train`. Learners
    with received parameters skip a last batch that is shorter than the client's limit.

    Args:
        client: The client whose samples are used.
        learners: Modules to train, by name. The first name is the phase: phases of the same name
            see the same batches in every method.
        losses: Maps a batch (`batch.x`, `batch.y`) to a loss, or to several, which are added.
        epochs: Number of passes over the samples.
        ctx: The round and the settings of the run.
        beside: A tensor with one row per training sample; `batch.beside` has the rows of a batch.
        epoch_begins: Called before every epoch.
        share: Share of the samples that an epoch sees, drawn again for each.

    Returns:
        The mean of the first loss over the last epoch.

    Raises:
        TrainingError: A loss is not finite.
        ConfigError: `train.augment` is set, and the inputs are not images.
    """
    train, phase = ctx.train, next(iter(learners))
    precision = client.precision or train.precision
    modules = [learner.module for learner in learners.values()]
    optimisers = {name: _optimiser(learner, train) for name, learner in learners.items()}
    if train.optimiser == "kept":
        for name, optimiser in optimisers.items():
            _restore_momentum(optimiser, name, learners[name], client.kept)
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
        with (
            trusting_statistics(modules if len(batch) == 1 else []),
            computing(precision, client.device),
        ):
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
    travels = any(learner.received for learner in learners.values())
    shortest = ctx.caution.shortest_batch if travels else 0
    total, samples = 0.0, max(1, round(share * len(client.train)))
    seen = samples
    for _ in range(epochs):
        total = 0.0
        if epoch_begins is not None:
            epoch_begins()
        for batch in _epoch(client, ctx, order, augment, beside, samples):
            if len(batch) < shortest:
                seen = samples - len(batch)
                continue
            kind = (client.architecture, phase, batch.x.shape[1:], beside is None)
            total += client.meter.count(kind, len(batch), partial(step, batch))
    if train.optimiser == "kept":
        for name, optimiser in optimisers.items():
            _keep_momentum(optimiser, name, learners[name], client.kept)
    if seen < samples:
        left = samples - seen
        log.info(
            "%s: left out the last %d samples, too few for a batch of the %s",
            *(client.name, left, phase),
        )
    return total / seen


def _epoch(
    client: Client,
    ctx: "Context",
    order: torch.Generator,
    augment: Augmentation | None,
    beside: Tensor | None,
    samples: int,
) -> Iterator[Batch]:
    train = ctx.train
    balanced = train.sampler == "balanced"
    batches = client.train.shuffled(
        train.batch_size, order, augment, beside, samples, balanced=balanced
    )
    if train.class_weights == "none":
        return batches
    weights = balanced_weights(client.train.labels, ctx.classes)
    return (replace(batch, weights=weights) for batch in batches)


def label_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Computes the cross-entropy of a batch, its classes weighted as `train.class_weights` says.

    Args:
        logits: A row for each sample of the batch.
        batch: The samples with their labels, as `fit` gives them.

    Returns:
        The mean loss.
    """
    return F.cross_entropy(logits, batch.y, batch.weights)


def only_images_augmented(shape: Shape) -> str:
    """The message that refuses augmentation of inputs that are not images."""
    return f"train.augment is for images, but its inputs are {described(shape)}"


def fit_labels(client: Client, ctx: "Context", received: Collection[str] = ()) -> float:
    """Trains the client's model on its labels, with cross-entropy, for `train.epochs` epochs.

    Args:
        client: The client to train.
        ctx: The round and the settings of the run.
        received: Names of the model's parameters that this round's download overwrote.

    Returns:
        The mean loss over the last epoch.

    Raises:
        TrainingError: A loss is not finite.
    """
    return fit(
        client,
        {"model": Learner(client.model, ctx.train.lr, received)},
        lambda batch: label_loss(client.model(batch.x), batch),
        epochs=ctx.train.epochs,
        ctx=ctx,
    )


def train_rows(
    module: nn.Module,
    rows: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    lr: float,
    epochs: int,
    batch: int,
    ctx: "Context",
) -> None:
    """Trains a module of the server on rows that clients sent, with plain SGD.

    Rows are shuffled in every epoch. The optimiser keeps nothing between rounds; FLOPs are added
    to `ctx.meter`.

    Args:
        module: The module to train in place.
        rows: Inputs, one row per sample.
        targets: One target per row.
        loss: Maps rows and their targets to a loss.
        lr: Learning rate.
        epochs: Number of passes over the rows.
        batch: Rows in a step; 0 for all.
        ctx: The round and the settings of the run.
    """
    optimiser = SGD(module.parameters(), lr=lr)
    order = ctx.streams.torch("server.batches", round=ctx.round)

    def step(chosen: Tensor) -> None:
        optimiser.zero_grad()
        loss(rows[chosen], targets[chosen]).backward()
        optimiser.step()

    for _ in range(epochs):
        for chosen in torch.randperm(len(rows), generator=order).split(batch or len(rows)):
            # What a step costs need not grow with its rows: equal kinds are of equal length.
            kind = ("server", len(chosen))
            ctx.meter.count(kind, len(chosen), partial(step, chosen))


@torch.no_grad()
def survey(
    client: Client, model: nn.Module, see: Callable[[Batch], None], *, batch_size: int
) -> None:
    """Passes once over the client's training samples without learning, and counts the FLOPs.

    Args:
        client: The client whose samples are used, in order and without augmentation.
        model: The model that `see` calls; it is in evaluation mode meanwhile.
        see: Called with every batch; gradients are off.
        batch_size: Samples in a batch.
    """
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
    """Freezes a model within a `with` block: parameters, running statistics and dropout.

    A gradient still passes through the model to its input.

    Args:
        model: The model, which gets its former mode back afterwards.

    Example:
        >>> from torch import nn
        >>> from pfedes.methods import frozen
        >>> layer = nn.Linear(2, 1)
        >>> with frozen(layer):
        ...     layer.weight.requires_grad, layer.training
        (False, False)
        >>> layer.weight.requires_grad, layer.training
        (True, True)
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


def _restore_momentum(optimiser: SGD, name: str, learner: Learner, kept: dict[str, Tensor]) -> None:
    found = {n: kept.get(f"momentum.{name}.{n}") for n, _ in _lasting(learner)}
    if not any(buffer is not None for buffer in found.values()):
        return
    for parameter_name, parameter in learner.module.named_parameters():
        # Zero is how momentum begins: the optimiser wants it for all parameters, or for none.
        buffer = torch.zeros_like(parameter)
        if (restored := found.get(parameter_name)) is not None:
            # Laid out in memory as the parameter is, which the file does not record.
            buffer.copy_(restored)
        optimiser.state[parameter]["momentum_buffer"] = buffer


def _keep_momentum(optimiser: SGD, name: str, learner: Learner, kept: dict[str, Tensor]) -> None:
    for parameter_name, parameter in _lasting(learner):
        if (buffer := optimiser.state[parameter].get("momentum_buffer")) is not None:
            kept[f"momentum.{name}.{parameter_name}"] = buffer


def _lasting(learner: Learner) -> Iterator[tuple[str, nn.Parameter]]:
    """The parameters that stay at the client between rounds."""
    for name, parameter in learner.module.named_parameters():
        if name not in learner.received:
            yield name, parameter
