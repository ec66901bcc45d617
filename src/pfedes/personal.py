"""A client's model with all it takes to use it: what predicts, and what is exported."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pfedes.data.dataset import Images, Progress, silent
from pfedes.data.pictures import open_picture, pictures_below
from pfedes.data.samples import Normaliser
from pfedes.errors import DataError, ModelError
from pfedes.facts import Facts
from pfedes.shape import Shape, is_image, kind_of

BATCH = 256  # pictures
MOST_NAMED = 5  # unreadable pictures in one line


class Prediction(NamedTuple):
    """One class that a picture may be of."""

    file: str
    label: str
    probability: float


@dataclass(frozen=True)
class Personal:
    """What a client uses after training, wherever it was found."""

    model: nn.Module
    class_names: tuple[str, ...]
    normaliser: Normaliser
    shape: Shape
    facts: Facts

    def __post_init__(self) -> None:
        self.model.eval()

    def probabilities(self, pixels: Tensor) -> Tensor:
        """Of every class, for pixels 0..255 of shape (n, height, width, channels)."""
        with torch.no_grad():
            outputs: Tensor = self.model(self.normaliser(pixels))
        return outputs.softmax(dim=1)

    def predict(
        self, pictures: Sequence[Path | str], *, top: int = 1, progress: Progress = silent
    ) -> list[Prediction]:
        """The `top` likeliest classes of each picture, the likeliest first.

        A directory stands for all pictures below it, sorted. All must be readable.
        """
        if not is_image(self.shape):
            raise DataError(f"{self.facts.client}'s model is for {kind_of(self.shape)}, not images")
        channels, height, width = self.shape
        files = list(_files(pictures))
        found: list[Prediction] = []
        unreadable: list[tuple[Path, str]] = []
        for start in range(0, len(files), BATCH):
            progress("predicting", start, len(files))
            batch: list[Images] = []
            for file in files[start : start + BATCH]:
                try:
                    batch.append(open_picture(file, (height, width), channels))
                except DataError as error:
                    unreadable.append((file, str(error)))
            if not unreadable:  # else it is only left to find out which others are
                pixels = torch.from_numpy(np.stack(batch))
                found += self._likeliest(files[start : start + BATCH], pixels, top)
        progress("predicting", len(files), len(files))
        if unreadable:
            raise DataError(_complaint(unreadable))
        return found

    def export(
        self, directory: Path | str, *, onnx: bool = False, progress: Progress = silent
    ) -> Path:
        """Writes weights, a model card and what loads them without pfedes into a new directory."""
        # Imported where used: a template engine, and only to export.
        from pfedes.export import export

        return export(self, Path(directory), onnx=onnx, progress=progress)

    def _likeliest(self, files: Sequence[Path], pixels: Tensor, top: int) -> Iterator[Prediction]:
        chances = self.probabilities(pixels)
        if not bool(torch.isfinite(chances).all()):
            raise ModelError(f"{self.facts.client}'s model gives numbers that are not finite")
        values, labels = chances.topk(min(top, len(self.class_names)), dim=1)
        for file, row, which in zip(files, values.tolist(), labels.tolist(), strict=True):
            for value, label in zip(row, which, strict=True):
                yield Prediction(str(file), self.class_names[label], value)


def _files(pictures: Sequence[Path | str]) -> Iterator[Path]:
    """The pictures that are meant. A file that is named may have any ending."""
    for place in map(Path, pictures):
        if place.is_dir():
            below = pictures_below(place)
            if not below:
                raise DataError(f"{place} holds no pictures")
            yield from below
        else:
            yield place


def _complaint(unreadable: Sequence[tuple[Path, str]]) -> str:
    """One line that names the first few."""
    (_, reason), *others = unreadable
    if not others:
        return reason
    more = len(others) - MOST_NAMED
    names = [str(file) for file, _ in others[:MOST_NAMED]]
    return f"{reason}; nor can {', '.join(names)}{f' and {more:,} more' if more > 0 else ''}"
