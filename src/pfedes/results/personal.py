"""A client's model with all it takes to use it: what predicts, and what is exported."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pfedes.core.client import Client
from pfedes.core.payload import Payload
from pfedes.core.protocol import Task
from pfedes.core.samples import Normaliser, Preparation
from pfedes.core.scores import Scores
from pfedes.core.shapes import Shape, described
from pfedes.data.dataset import Images, Progress, silent
from pfedes.data.preprocess import Preprocess
from pfedes.data.readers.arrays import open_numbers
from pfedes.data.readers.images import is_folder, open_picture, pictures_below
from pfedes.data.tables import encoded
from pfedes.errors import DamageError, DataError, ModelError
from pfedes.fleet.client_host import host_of, personal_model
from pfedes.imports import is_own
from pfedes.population.simulation import Simulation
from pfedes.results.provenance import Moment, Provenance, provenance_of
from pfedes.store.client_store import ClientStore

BATCH = 256  # inputs
MOST_NAMED = 5  # unreadable pictures in one line


Named = tuple[list[str], Tensor]
"""Inputs, and what each is called."""


class Prediction(NamedTuple):
    """One likely class of an input.

    Attributes:
        file: The file; rows of files of numbers are named `file:1`, `file:2` and so on.
        label: Name of the class.
        probability: Its probability, 0 to 1.
        flags: Unusual values and categories in a row of a table.
    """

    file: str
    label: str
    probability: float
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class PersonalModel:
    """A client's model after training, with everything needed to use it. See `Run.personal`.

    Attributes:
        model: The torch module, in evaluation mode.
        class_names: Names of the classes, in the order of the logits.
        prepare: Maps raw inputs to those of the model.
        shape: Shape of one input, channels first.
        facts: What a model card says: run, round, data, samples and scores.
        untrained: Builds a participant's own network without its weights; None for built-in ones.
        table: How named columns of a table become inputs; None without a table.
    """

    model: nn.Module
    class_names: tuple[str, ...]
    prepare: Preparation
    shape: Shape
    facts: Provenance
    untrained: Callable[[], nn.Module] | None = None
    table: Preprocess | None = None

    def __post_init__(self) -> None:
        self.model.eval()

    @property
    def sees_pictures(self) -> bool:
        """Whether the model was trained on pixels, not on other numbers."""
        return isinstance(self.prepare, Normaliser)

    def probabilities(self, inputs: Tensor) -> Tensor:
        """Computes the probabilities of all classes.

        Args:
            inputs: Pixels 0 to 255, (n, height, width, channels), or numbers, (n, *shape).

        Returns:
            Probabilities, (n, classes).
        """
        with torch.no_grad():
            outputs: Tensor = self.model(self.prepare(inputs))
        return outputs.softmax(dim=1)

    def predict(
        self,
        files: Sequence[Path | str],
        *,
        top: int = 1,
        columns_by_position: bool = False,
        progress: Progress = silent,
    ) -> list[Prediction]:
        """Predicts the classes of images or rows in files.

        Args:
            files: Images and directories of images; for a model of numbers, `.npy` and `.csv`.
            top: Number of classes for each input, the likeliest first.
            columns_by_position: Whether files of a table have no header, so that columns are not
                found by name.
            progress: Called with a label, the number of inputs done and their total.

        Returns:
            The `top` likeliest classes of each input, one after another.

        Raises:
            DataError: A file cannot be read or does not fit; nothing is predicted then.
        """
        if self.table is not None:
            return self._table_rows(self.table, list(map(Path, files)), top, columns_by_position)
        if columns_by_position:
            raise DataError("--columns-by-position is for models of tables with named columns")
        read = self._pictures if self.sees_pictures else self._numbers
        return [
            prediction
            for names, inputs in read(list(map(Path, files)), progress)
            for prediction in self._likeliest(names, inputs, top)
        ]

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

    def _table_rows(
        self, table: Preprocess, files: Sequence[Path], top: int, by_position: bool
    ) -> list[Prediction]:
        # All are read first, as above.
        read = [(file, *encoded(table, file, by_position)) for file in files]
        found = []
        for file, inputs, flags in read:
            names = [f"{file}:{row}" for row in range(1, len(inputs) + 1)]
            remarks = dict(zip(names, map(tuple, flags), strict=True))
            for prediction in self._likeliest(names, torch.from_numpy(inputs), top):
                found.append(prediction._replace(flags=remarks[prediction.file]))
        return found

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


def restored(simulation: Simulation, store: ClientStore, task: Task) -> tuple[Client, nn.Module]:
    """The client at a task's base, and the model that it uses given what the task brings."""
    client = host_of(simulation, store).restore(task)
    ctx = simulation.context(task.round)
    return client, personal_model(simulation.method, client, task.download, ctx)


def personal_at(
    simulation: Simulation,
    store: ClientStore,
    name: str,
    moment: Moment,
    download: Payload,
    scores: Scores | None = None,
) -> PersonalModel:
    """A client's model at a moment, with all it takes to predict with it or export it.

    `scores` are those that were measured of it; without them it is measured now, on its data.
    """
    task = Task(moment.run, name, moment.round, moment.version, download)
    client, model = restored(simulation, store, task)
    facts = provenance_of(simulation, store, moment, client, scores or client.score(model))
    population = simulation.population
    # What the weights were trained with, whatever would be learned of the file today.
    table = store.preprocess(moment.run, name) or population.preprocess(name)
    if table is not None and client.shape != (len(table.features),):
        raise DamageError(
            f"the table of {name} becomes {len(table.features)} numbers, its model takes "
            f"{described(client.shape)}"
        )
    return PersonalModel(
        model,
        population.class_names,
        client.train.prepare,
        client.shape,
        facts,
        partial(population.untrained, name) if is_own(facts.architecture) else None,
        table,
    )
