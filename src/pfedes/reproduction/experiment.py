"""What an experiment is: the runs it wants, and what it shows of them."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from pfedes.config import Config
from pfedes.files import parse_json, publish, read
from pfedes.reproduction.record import Record, not_converged
from pfedes.reproduction.scale import Scale
from pfedes.reproduction.scenario import Setting
from pfedes.results.run import Run, open_run
from pfedes.results.table import Table
from pfedes.sweep.cells import Cell

NOT_RUN = "not run yet"
MOST = 200  # runs that are held in memory, with their rounds


@dataclass(frozen=True)
class Exhibit:
    """What people look at. Names become file names."""

    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Measure:
    """What takes a run's states to know. Kept beside its record, so it outlives them."""

    name: str
    settings: Callable[[Scale], Sequence[Setting]]
    take: Callable[[Run], Any]

    def of(self, directory: Path) -> Any | None:
        """The measurement of a run; None where it was not taken while there were states."""
        path = directory / f"{self.name}.json"
        if not path.is_file():
            if not (directory / "state").is_dir():
                return None
            publish(path, json.dumps(self.take(open_run(directory))).encode())
        return parse_json(path, read(path))


@dataclass(frozen=True)
class Experiment:
    """One result of the paper."""

    name: str
    title: str
    source: str  # where it stands in the paper
    settings: Callable[[Scale], Sequence[Setting]]
    show: Callable[["Results"], Exhibit]
    measures: tuple[Measure, ...] = ()
    deviations: tuple[str, ...] | None = None  # where those of the scale do not apply
    compares: bool = False  # whether it can show further methods beside its own


def cell_of(config: Config, root: Path) -> Cell:
    """The place of a run, known by what determines its result: equal runs are run once."""
    source = config.data.source.partition(":")[0]
    crowd = f"n{config.partition.clients}"
    name = f"{config.method.name}-{source}-{crowd}-{config.result_digest()[:8]}"
    return Cell(name, config, root / "cells" / name)


class Results:
    """The finished runs of an experiment, by setting."""

    def __init__(
        self,
        scale: Scale,
        root: Path,
        reasons: Mapping[str, str] | None = None,
        against: str = "",
    ) -> None:
        self.scale = scale
        self.root = root
        self.against = against
        """The method to which differences are shown; the best baseline where none is named."""
        self._reasons = reasons or {}  # why a cell has no result, by its name
        self._read: dict[str, Record] = {}  # a page asks for a run dozens of times

    def record(self, setting: Setting) -> Record | None:
        """The run of a setting; of a grid the one that did best on validation, never on test."""
        records = [record for cell in self.cells(setting) if (record := self.record_of(cell))]
        return max(records, key=lambda record: record.validation, default=None)

    def record_of(self, cell: Cell) -> Record | None:
        """A cell's run if it is finished, which changes no more."""
        if cell.name not in self._read and (record := Record.of(cell.directory, cell.config)):
            if len(self._read) == MOST:
                self._read.clear()
            self._read[cell.name] = record
        return self._read.get(cell.name)

    def records(self, settings: Sequence[Setting]) -> list[Record]:
        return [record for setting in settings if (record := self.record(setting))]

    def reason(self, setting: Setting) -> str:
        """Why a setting has no result."""
        return next(filter(None, map(self.reason_of, self.cells(setting))), NOT_RUN)

    def reason_of(self, cell: Cell) -> str:
        """Why a cell has no result; '' if that is not known."""
        return self._reasons.get(cell.name, "")

    def accuracy(self, settings: Sequence[Setting], *, judged: bool = True) -> "Accuracy":
        """Over the seeds that are there. What did not converge is marked, if it is to be judged."""
        records = self.records(settings)
        if not records:
            return Accuracy((), "", self.reason(settings[0]))
        failure = next(filter(None, map(not_converged, records)), None)
        if failure is not None and judged:
            return Accuracy((), "-", failure)
        return Accuracy(tuple(100 * record.accuracy for record in records))

    def selected(self, settings: Sequence[Setting]) -> "Accuracy":
        """As `accuracy`, by the rule of the authors' script: the best round's selected clients."""
        judged = self.accuracy(settings)
        if judged.mean is None:
            return judged
        values = [record.best_selected for record in self.records(settings)]
        return Accuracy(tuple(100 * value for value in values if value is not None))

    def measured(self, setting: Setting, measure: Measure) -> Any | None:
        """What was measured on a setting's run, if it was run."""
        record = self.record(setting)
        return None if record is None else measure.of(record.directory)

    def cells(self, setting: Setting) -> list[Cell]:
        """The places of a setting's runs: several where a grid is searched."""
        return [cell_of(config, self.root) for config in self.scale.configs(setting)]


@dataclass(frozen=True)
class Accuracy:
    """In percent, of each seed; `mark` stands where there is none."""

    seeds: tuple[float, ...]
    mark: str = ""
    reason: str = ""

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.seeds) if self.seeds else None

    def __str__(self) -> str:
        if not self.seeds:
            return self.mark
        if len(self.seeds) == 1:
            return f"{self.seeds[0]:.2f}"
        return f"{self.mean:.2f} ± {statistics.stdev(self.seeds):.2f}"

    def minus(self, other: float | None) -> str:
        """The difference in points, with its sign."""
        return "" if self.mean is None or other is None else f"{self.mean - other:+.2f}"
