"""A client's share of a data set, handed out in normalised batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pfedes.data.augment import Augmentation


@dataclass(frozen=True)
class Batch:
    """Inputs (n, channels, height, width), their labels, and what was computed of them before."""

    x: Tensor
    y: Tensor
    beside: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Normaliser:
    """Pixels 0..255 to (pixel/255 - mean) / std, as one multiplication and one addition."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: Tensor
    shift: Tensor

    @classmethod
    def of(cls, mean: Sequence[float], std: Sequence[float]) -> "Normaliser":
        # A channel that never varies carries nothing: centre it, do not divide by zero.
        means, stds = tuple(mean), tuple(s if s > 0 else 1.0 for s in std)
        centre, spread = torch.tensor([means, stds], dtype=torch.float64)
        return cls(means, stds, (1 / (255 * spread)).float(), (-centre / spread).float())

    def __call__(self, pixels: Tensor) -> Tensor:
        """Channels come last in memory, which convolutions prefer, and second in the shape."""
        rows = pixels.float().flatten(2)  # whole rows at once: channels alone are slow, being few
        width = pixels.shape[2]
        scale, shift = (t.to(rows.device).repeat(width) for t in (self.scale, self.shift))
        rows.mul_(scale).add_(shift)
        return rows.view(pixels.shape).permute(0, 3, 1, 2)


class Samples:
    """Pixels (n, height, width, channels) and labels of one split of one client."""

    def __init__(self, pixels: Tensor, labels: Tensor, normalise: Normaliser) -> None:
        self.pixels = pixels
        self.labels = labels
        self.normalise = normalise

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        _, height, width, channels = self.pixels.shape
        return channels, height, width

    def batch(self, rows: Tensor | slice, augment: Augmentation | None = None) -> Batch:
        pixels = self.pixels[rows]
        if augment is not None:
            pixels = augment(pixels)
        return Batch(self.normalise(pixels), self.labels[rows])

    def shuffled(
        self,
        size: int,
        generator: torch.Generator,
        augment: Augmentation | None = None,
        beside: Tensor | None = None,
    ) -> Iterator[Batch]:
        """One epoch in random order; the last batch may be smaller, nothing is dropped.

        Batches carry their rows of `beside`, which has one for every sample.
        """
        for rows in torch.randperm(len(self), generator=generator).split(size):
            batch = self.batch(rows, augment)
            yield batch if beside is None else replace(batch, beside=beside[rows])

    def in_order(self, size: int) -> Iterator[Batch]:
        for start in range(0, len(self), size):
            yield self.batch(slice(start, start + size))
