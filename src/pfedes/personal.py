"""A client's model with all it takes to use it: what predicts, and what is exported."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pfedes.data.dataset import Images, Progress, silent
from pfedes.data.numbers import open_numbers
from pfedes.data.pictures import is_folder, open_picture, pictures_below
from pfedes.data.samples import Normaliser, Preparation
from pfedes.errors import DataError, ModelError
from pfedes.facts import Facts
from pfedes.shape import Shape

BATCH = 256  # inputs
MOST_NAMED = 5  # unreadable pictures in one line


Named = tuple[list[str], Tensor]
"""Inputs, and what each is called."""


class Prediction(NamedTuple):
    """One class that an input may be of. Rows of numbers are called `file:1`, `file:2`, ..."""

    file: str
    label: str
    probability: float


@dataclass(frozen=True)
class Personal:
    """What a client uses after training, wherever it was found."""

    model: nn.Module
    class_names: tuple[str, ...]
    prepare: Preparation
    shape: Shape
    facts: Facts
    untrained: Callable[[], nn.Module] | None = None
    """Builds the network of somebody's own as it was before; None for those of pfedes."""

    def __post_init__(self) -> None:
        self.model.eval()

    @property
    def sees_pictures(self) -> bool:
        """Whether it was trained on pixels, and not on numbers that somebody made."""
        return isinstance(self.prepare, Normaliser)

    def probabilities(self, inputs: Tensor) -> Tensor:
        """Of every class, for pixels 0..255 (n, height, width, channels) or numbers (n, *shape)."""
        with torch.no_grad():
            outputs: Tensor = self.model(self.prepare(inputs))
        return outputs.softmax(dim=1)

    def predict(
        self, files: Sequence[Path | str], *, top: int = 1, progress: Progress = silent
    ) -> list[Prediction]:
        """The `top` likeliest classes of each input, the likeliest first.

        Pictures, a directory standing for all pictures below it, sorted; or, for a model of
        numbers, .npy and .csv files. All must be readable.
        """
        read = self._pictures if self.sees_pictures else self._numbers
        return [
            prediction
            for names, inputs in read(list(map(Path, files)), progress)
            for prediction in self._likeliest(names, inputs, top)
        ]

    def export(
        self, directory: Path | str, *, onnx: bool = False, progress: Progress = silent
    ) -> Path:
        """Writes weights, a model card and what loads them without pfedes into a new directory."""
        # Imported where used: a template engine, and only to export.
        from pfedes.export import export

        return export(self, Path(directory), onnx=onnx, progress=progress)

    def _pictures(self, places: Sequence[Path], progress: Progress) -> Iterator[Named]:
        channels, height, width = self.shape
        files = list(_files(places))
        unreadable: list[tuple[Path, str]] = []
        for start in range(0, len(files), BATCH):
            progress("predicting", start, len(files))
            batch: list[Images] = []
            names = files[start : start + BATCH]
            for file in names:
                try:
                    batch.append(open_picture(file, (height, width), channels))
                except DataError as error:
                    unreadable.append((file, str(error)))
            if not unreadable:  # else it is only left to find out which others are
                yield list(map(str, names)), torch.from_numpy(np.stack(batch))
        progress("predicting", len(files), len(files))
        if unreadable:
            raise DataError(_complaint(unreadable))

    def _numbers(self, files: Sequence[Path], progress: Progress) -> Iterator[Named]:
        # All are read first: a file that cannot be is named before anything is said.
        arrays = [open_numbers(file, self.shape) for file in files]
        for done, (file, numbers) in enumerate(zip(files, arrays, strict=True), 1):
            for start in range(0, len(numbers), BATCH):
                batch = torch.from_numpy(numbers[start : start + BATCH])
                yield [f"{file}:{start + row}" for row in range(1, len(batch) + 1)], batch
            progress("predicting", done, len(files))

    def _likeliest(self, names: Sequence[str], inputs: Tensor, top: int) -> Iterator[Prediction]:
        chances = self.probabilities(inputs)
        if not bool(torch.isfinite(chances).all()):
            raise ModelError(f"{self.facts.client}'s model gives numbers that are not finite")
        values, labels = chances.topk(min(top, len(self.class_names)), dim=1)
        for name, row, which in zip(names, values.tolist(), labels.tolist(), strict=True):
            for value, label in zip(row, which, strict=True):
                yield Prediction(name, self.class_names[label], value)


def _files(places: Sequence[Path]) -> Iterator[Path]:
    """The pictures that are meant. A file that is named may have any ending."""
    for place in places:
        if is_folder(place):
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
