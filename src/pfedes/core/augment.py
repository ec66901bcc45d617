"""Random changes to training images, a batch at a time.

The three of the authors' released code: horizontal flip, random erasing, and a crop of the same
size after padding by 4. Every image of a batch gets its own draw; there is no loop over images.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

PADDING = 4
ERASE_PROBABILITY = 0.5
ERASE_AREA = 0.02, 0.33  # share of the image
ERASE_RATIO = 0.3, 3.3  # width over height
BLACK = -1


@dataclass(frozen=True)
class View:
    """Which pixel of its image each pixel will show.

    Flips, crops and rectangles are the same in all columns of a row, and in all rows of a column:
    what they do is worked out for rows and columns apart, and the pixels are moved only once.
    """

    rows: Tensor  # (n, height): numbers of rows, or BLACK
    columns: Tensor  # (n, width)
    hole_rows: Tensor  # (n, height): a pixel is black if its row
    hole_columns: Tensor  # (n, width): and its column are in the hole

    @classmethod
    def whole(cls, pixels: Tensor) -> "View":
        """Every image as it is."""
        count, height, width, _ = pixels.shape
        rows, columns = (
            torch.arange(n, dtype=torch.int32).repeat(count, 1) for n in (height, width)
        )
        return cls(rows, columns, torch.zeros_like(rows).bool(), torch.zeros_like(columns).bool())

    def of(self, pixels: Tensor) -> Tensor:
        """What is seen of the pixels (n, height, width, channels)."""
        count, height, width, channels = pixels.shape
        # Every pixel has a number in the whole batch; number 0 is an extra one, which is black.
        numbered = torch.cat([pixels.new_zeros(1, channels), pixels.reshape(-1, channels)])
        above = torch.arange(count, dtype=torch.int32)[:, None] * height
        numbers = ((above + self.rows) * width + 1)[:, :, None] + self.columns[:, None, :]
        numbers *= (self.rows != BLACK)[:, :, None] & (self.columns != BLACK)[:, None, :]
        numbers *= ~(self.hole_rows[:, :, None] & self.hole_columns[:, None, :])
        return numbered.index_select(0, numbers.flatten().to(pixels.device)).reshape(pixels.shape)


class Augmentation:
    """Flips, erases and crops pixels (n, height, width, channels); black is 0."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def __call__(self, pixels: Tensor) -> Tensor:
        return self.crop(self.erase(self.flip(View.whole(pixels)))).of(pixels)

    def flip(self, view: View) -> View:
        columns = view.columns
        mirrored = self._uniform(len(columns)) < 0.5
        return replace(view, columns=torch.where(mirrored[:, None], columns.flip(1), columns))

    def erase(self, view: View) -> View:
        """Blackens a random rectangle of about half of the images."""
        count, height, width = *view.rows.shape, view.columns.shape[1]
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
        return replace(view, hole_rows=rows & chosen[:, None], hole_columns=columns)

    def crop(self, view: View) -> View:
        """Shifts every image by up to 4 pixels each way; what comes in is black."""
        top, left = (
            torch.randint(2 * PADDING + 1, (len(view.rows),), generator=self.generator)
            for _ in range(2)
        )
        return View(
            rows=_shifted(view.rows, top, BLACK),
            columns=_shifted(view.columns, left, BLACK),
            hole_rows=_shifted(view.hole_rows, top, False),
            hole_columns=_shifted(view.hole_columns, left, False),
        )

    def _uniform(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.generator)


def _shifted(line: Tensor, start: Tensor, beyond: int) -> Tensor:
    """From each padded line as much as it is long, from its start on."""
    padded = torch.nn.functional.pad(line, (PADDING, PADDING), value=beyond)
    return padded.gather(1, start[:, None] + torch.arange(line.shape[1]))
