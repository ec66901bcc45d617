"""Losses, gradients, their noise, and curvature at one place, over all samples of a client."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes.reproduction.theory.bounds import Point

Loss = Callable[[Tensor, Tensor], Tensor]
"""The mean over a batch, of predictions and labels."""

LOSS_ROUNDING = 1e-6
"""What float32 may add to a difference of losses: taken off, so that short ways claim nothing."""


@dataclass(frozen=True)
class BatchView:
    """A batch as the proof sees it: the same samples, raw and enhanced."""

    raw: Tensor
    enhanced: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Gradients:
    """Losses and gradients of the raw and the enhanced loss over all samples, in this order.

    In float64: they are sums of products of millions of numbers, and differences of such sums.
    """

    losses: Tensor  # 2
    full: Tensor  # 2 x parameters
    products: Tensor  # 2 x 2: inner products of the full gradients
    noise: Tensor  # 2 x 2: covariance of a batch's gradients around the full ones

    def point(self, iteration: int) -> Point:
        return Point(
            iteration=iteration,
            raw_loss=float(self.losses[0]),
            enhanced_loss=float(self.losses[1]),
            raw_square=float(self.products[0, 0]),
            enhanced_square=float(self.products[1, 1]),
            inner=float(self.products[0, 1]),
            raw_noise=max(0.0, float(self.noise[0, 0])),  # a single batch has none: rounding
            enhanced_noise=max(0.0, float(self.noise[1, 1])),
            shared_noise=float(self.noise[0, 1]),
        )


def gradients(
    model: nn.Module, views: Sequence[BatchView], loss: Loss = F.cross_entropy
) -> Gradients:
    """Full gradients, and how a batch's gradients scatter around them: every batch counts once."""
    parameters = list(model.parameters())
    samples, size = sum(len(view.labels) for view in views), sum(p.numel() for p in parameters)
    losses, second = torch.zeros(2).double(), torch.zeros(2, 2).double()
    full, average = torch.zeros(2, size).double(), torch.zeros(2, size).double()
    for view in views:
        values = [loss(model(x), view.labels) for x in (view.raw, view.enhanced)]
        pair = torch.stack([_flat(torch.autograd.grad(v, parameters)) for v in values])
        share = len(view.labels) / samples
        losses += share * torch.stack(values).detach().double()
        full.add_(pair, alpha=share)
        average.add_(pair, alpha=1 / len(views))
        second += pair @ pair.T / len(views)
    products, across = full @ full.T, average @ full.T
    return Gradients(losses, full, products, second - across - across.T + products)


@torch.no_grad()
def mean_losses(
    model: nn.Module, views: Sequence[BatchView], loss: Loss = F.cross_entropy
) -> tuple[float, float]:
    """The raw and the enhanced loss over all samples."""
    samples = sum(len(view.labels) for view in views)
    pairs = [
        [float(loss(model(x), view.labels)) * len(view.labels) for x in (view.raw, view.enhanced)]
        for view in views
    ]
    raw, enhanced = (sum(column) / samples for column in zip(*pairs, strict=True))
    return raw, enhanced


class Trajectory:
    """What the way from each point to the next says of L1; both estimates are lower bounds."""

    def __init__(self) -> None:
        self.secants: list[float] = []
        self.bends: list[float] = []
        self._last: tuple[Tensor, Gradients] | None = None

    def visit(self, model: nn.Module, here: Gradients) -> None:
        place = _flat(p.detach() for p in model.parameters())
        if self._last is not None and bool((place != self._last[0]).any()):
            way, before = place - self._last[0], self._last[1]
            length = float(way.norm())
            self.secants.append(float((here.full[0] - before.full[0]).norm()) / length)
            rise = float(here.losses[0] - before.losses[0] - before.full[0] @ way)
            self.bends.append(2 * (rise - LOSS_ROUNDING) / length**2)
        self._last = place, here


def largest_curvature(
    model: nn.Module,
    views: Sequence[BatchView],
    loss: Loss = F.cross_entropy,
    *,
    iterations: int = 30,
    tolerance: float = 1e-3,
) -> float:
    """The largest |eigenvalue| of the raw loss's Hessian, by power iteration, from below.

    ||H v|| never exceeds it for a v of length 1, whether or not the iteration has converged.
    """
    parameters = list(model.parameters())
    samples = sum(len(view.labels) for view in views)
    generator = torch.Generator().manual_seed(0)
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    best = 0.0
    for _ in range(iterations):
        length = float(_flat(direction).norm())
        if length == 0:
            break
        direction = [part / length for part in direction]
        bent = [torch.zeros_like(part) for part in direction]
        for view in views:
            value = loss(model(view.raw), view.labels) * (len(view.labels) / samples)
            slopes = torch.autograd.grad(value, parameters, create_graph=True)
            pairs = zip(slopes, direction, strict=True)
            along = torch.stack([(slope * part).sum() for slope, part in pairs]).sum()
            products = torch.autograd.grad(along, parameters, materialize_grads=True)
            torch._foreach_add_(bent, products)
        before, best = best, max(best, float(_flat(bent).norm()))
        if best - before <= tolerance * best:
            break
        direction = bent
    return best


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).double()
