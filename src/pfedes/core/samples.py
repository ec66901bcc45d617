"""A client's share of a data set, handed out in normalised batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pfedes.core.augment import Augmentation
from pfedes.core.balance import balanced_rows
from pfedes.core.shapes import Shape, is_image
from pfedes.errors import DataError


@dataclass(frozen=True)
class Batch:
    """Samples that are worked on together.

    Args:
        x: Inputs, (n, *shape).
        y: Their labels.
        beside: What was computed of them before, a row for each; None if nothing was.
        weights: The weight of each class in a loss on labels; None if all weights are equal.
    """

    x: Tensor
    y: Tensor
    beside: Tensor | None = None
    weights: Tensor | None = None

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


@dataclass(frozen=True)
class Standardiser:
    """Numbers to (number - mean) / std, channel by channel; a table's features are its channels."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, mean: Sequence[float], std: Sequence[float]) -> "Standardiser":
        return cls(tuple(mean), tuple(s if s > 0 else 1.0 for s in std))  # as above

    def __call__(self, numbers: Tensor) -> Tensor:
        """Always a copy: what is done to a batch must not reach what is stored."""
        along = -1, *[1] * (numbers.dim() - 2)
        numbers = numbers.float()
        mean, std = (numbers.new_tensor(values).view(along) for values in (self.mean, self.std))
        return (numbers - mean).div_(std)


Preparation = Normaliser | Standardiser
"""Turns stored inputs into those of models."""


AS_THEY_ARE = Standardiser.of([0.0], [1.0])


class Samples:
    """Inputs and labels of one split of one client: pixels (n, height, width, channels) here."""

    def __init__(self, inputs: Tensor, labels: Tensor, prepare: Preparation) -> None:
        self.inputs = inputs
        self.labels = labels
        self.prepare = prepare

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> Shape:
        """The shape of one input for models: channels, height, width of an image."""
        _, height, width, channels = self.inputs.shape
        return channels, height, width

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def batch(self, rows: Tensor | slice, augment: Augmentation | None = None) -> Batch:
        pixels = self.inputs[rows]
        if augment is not None:
            pixels = augment(pixels)
        return Batch(self.prepare(pixels), self.labels[rows])

    def shuffled(
        self,
        size: int,
        generator: torch.Generator,
        augment: Augmentation | None = None,
        beside: Tensor | None = None,
        most: int | None = None,
        *,
        balanced: bool = False,
    ) -> Iterator[Batch]:
        """One epoch in random order; the last batch may be smaller, nothing is dropped.

        Batches carry their rows of `beside`, which has one for every sample. With `most`, the epoch
        ends after so many samples. A `balanced` one sees equally many of each class.
        """
        if balanced:
            count = len(self) if most is None else most
            order = balanced_rows(self.labels, count, generator)
        else:
            order = torch.randperm(len(self), generator=generator)[:most]
        for rows in order.split(size):
            batch = self.batch(rows, augment)
            yield batch if beside is None else replace(batch, beside=beside[rows])

    def in_order(self, size: int) -> Iterator[Batch]:
        for start in range(0, len(self), size):
            yield self.batch(slice(start, start + size))


class FloatSamples(Samples):
    """Ready numbers (n, *shape) instead of pixels: signals, tables, embeddings, and images too."""

    def __init__(self, inputs: Tensor, labels: Tensor, prepare: Standardiser = AS_THEY_ARE) -> None:
        super().__init__(inputs, labels, prepare)
        known = len(prepare.mean), len(prepare.std)
        if not {*known} <= {1, self.shape[0]}:
            raise DataError(
                f"mean and std have {known[0]} and {known[1]} numbers, "
                f"inputs of {list(self.shape)} need {self.shape[0]} or one for all"
            )

    @property
    def shape(self) -> Shape:
        return tuple(self.inputs.shape[1:])

    def batch(self, rows: Tensor | slice, augment: Augmentation | None = None) -> Batch:
        numbers = self.inputs[rows]
        if augment is not None:
            numbers = augment(numbers.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        x = self.prepare(numbers)
        if is_image(self.shape):
            x = x.contiguous(memory_format=torch.channels_last)
        return Batch(x, self.labels[rows])
