"""Local SGD, the one loop in which all methods train."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD

from pfedes.client import Client
from pfedes.data.samples import Batch
from pfedes.section import Section

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
    optimiser: Literal["fresh", "kept"] = Field(
        "fresh", description="momentum at the start of a round: fresh | kept from the last one"
    )
    min_uploads: int = Field(1, ge=1, description="a round with fewer valid uploads has failed")
    patience: int = Field(
        0, ge=0, description="stop after so many rounds without better validation; 0 = never"
    )


def fit(
    client: Client,
    trained: nn.Module,
    loss: Callable[[Batch], Tensor],
    *,
    phase: str,
    epochs: int,
    lr: float,
    ctx: "Context",
) -> float:
    """Minimises a loss over the client's training samples; returns its mean in the last epoch.

    The phase names the order of the samples: equal phases of different methods see equal batches.
    """
    train = ctx.train
    parameters = list(trained.parameters())
    optimiser = SGD(
        parameters,
        lr=lr,
        momentum=train.momentum,
        weight_decay=train.weight_decay,
        fused=True,
    )
    if train.optimiser == "kept":
        _restore_momentum(optimiser, trained, client.kept, phase)
    order = ctx.streams.torch(f"batches.{phase}", round=ctx.round, client=client.name)

    def step(batch: Batch) -> float:
        optimiser.zero_grad()
        value = loss(batch)
        value.backward()
        if train.clip:
            clip_grad_norm_(parameters, train.clip)
        optimiser.step()
        return value.item() * len(batch)

    trained.train()
    total = 0.0
    for _ in range(epochs):
        total = 0.0
        for batch in client.train.shuffled(train.batch_size, order):
            kind = (client.architecture, phase, batch.x.shape[1:])
            total += client.meter.count(kind, len(batch), partial(step, batch))
    if train.optimiser == "kept":
        _keep_momentum(optimiser, trained, client.kept, phase)
    return total / len(client.train)


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
    """Whether a sample's output depends on its batch, so that batches must not be joined."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


@contextmanager
def statistics_resting(model: nn.Module) -> Iterator[None]:
    """Batch normalisation by the batch itself, without a trace in the running statistics."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


def _restore_momentum(
    optimiser: SGD, trained: nn.Module, kept: dict[str, Tensor], phase: str
) -> None:
    for name, parameter in trained.named_parameters():
        if (buffer := kept.get(f"momentum.{phase}.{name}")) is not None:
            # Laid out in memory as the parameter is, which the file does not record.
            buffer = torch.empty_like(parameter).copy_(buffer)
            optimiser.state[parameter]["momentum_buffer"] = buffer


def _keep_momentum(optimiser: SGD, trained: nn.Module, kept: dict[str, Tensor], phase: str) -> None:
    for name, parameter in trained.named_parameters():
        if (buffer := optimiser.state[parameter].get("momentum_buffer")) is not None:
            kept[f"momentum.{phase}.{name}"] = buffer
