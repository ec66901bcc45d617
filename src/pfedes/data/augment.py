"""Random changes to training images, a batch at a time.

The three of the authors' released code: horizontal flip, random erasing, and a crop of the same
size after padding by 4. Every image of a batch gets its own draw; there is no loop over images.
"""

import math

import torch
from torch import Tensor

PADDING = 4
ERASE_PROBABILITY = 0.5
ERASE_AREA = 0.02, 0.33  # share of the image
ERASE_RATIO = 0.3, 3.3  # width over height


class Augmentation:
    """Flips, erases and crops pixels (n, height, width, channels); black is 0."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def __call__(self, pixels: Tensor) -> Tensor:
        # Done to the pixels' numbers instead, of which there is one for all channels; the pixels
        # themselves are moved once. Number 0 is a black one.
        *shape, channels = pixels.shape
        numbered = torch.cat([pixels.new_zeros(1, channels), pixels.reshape(-1, channels)])
        numbers = torch.arange(1, len(numbered), dtype=torch.int32).reshape(*shape, 1)
        chosen = self.crop(self.erase(self.flip(numbers)))
        return numbered.index_select(0, chosen.flatten()).reshape(pixels.shape)

    def flip(self, pixels: Tensor) -> Tensor:
        mirrored = self._uniform(len(pixels)) < 0.5
        return torch.where(mirrored[:, None, None, None], pixels.flip(2), pixels)

    def erase(self, pixels: Tensor) -> Tensor:
        """Blackens a random rectangle of about half of the images."""
        count, height, width, _ = pixels.shape
        low, high = ERASE_AREA
        area = (low + (high - low) * self._uniform(count)) * height * width
        low, high = (math.log(limit) for limit in ERASE_RATIO)
        ratio = torch.exp(low + (high - low) * self._uniform(count))
        tall = (area / ratio).sqrt().round().clamp(1, height)
        wide = (area * ratio).sqrt().round().clamp(1, width)
        top = (self._uniform(count) * (height - tall + 1)).floor()
        left = (self._uniform(count) * (width - wide + 1)).floor()
        row, column = torch.arange(height), torch.arange(width)
        rows = (row >= top[:, None]) & (row < (top + tall)[:, None])
        columns = (column >= left[:, None]) & (column < (left + wide)[:, None])
        chosen = self._uniform(count) < ERASE_PROBABILITY
        hole = (rows[:, :, None] & columns[:, None, :]) & chosen[:, None, None]
        return pixels.masked_fill(hole[..., None], 0)

    def crop(self, pixels: Tensor) -> Tensor:
        """Shifts every image by up to 4 pixels each way; what comes in is black."""
        count, height, width, channels = pixels.shape
        padded = pixels.new_zeros(count, height + 2 * PADDING, width + 2 * PADDING, channels)
        padded[:, PADDING : PADDING + height, PADDING : PADDING + width] = pixels
        top, left = (
            torch.randint(2 * PADDING + 1, (count,), generator=self.generator) for _ in range(2)
        )
        image = torch.arange(count)[:, None, None]
        rows = (top[:, None] + torch.arange(height))[:, :, None]
        columns = (left[:, None] + torch.arange(width))[:, None, :]
        return padded[image, rows, columns]

    def _uniform(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.generator)
