"""Runs everything that experiments need, each run once, and keeps the results."""

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pfedes.config.runtime import RuntimeConfig
from pfedes.files import writing
from pfedes.reproduction.experiment import Experiment, Measure, Results, cell_of
from pfedes.reproduction.record import Record
from pfedes.reproduction.scale import Scale
from pfedes.reproduction.scenario import Setting
from pfedes.sweep.cells import Cell, Outcome, Watcher
from pfedes.sweep.execute import run_cells


@dataclass(frozen=True)
class Campaign:
    """The runs of some experiments at one scale, below one directory.

    An archive is where their records are copied to. What is finished there is not run again, so
    a fresh clone of a repository continues an archive that travels with it.
    """

    experiments: Sequence[Experiment]
    scale: Scale
    root: Path
    data_dir: str = ""
    archive: Path | None = None
    settings: tuple[Setting, ...] = ()
    """Further ones that are run, which no experiment of these need want."""

    def cells(self) -> list[Cell]:
        """Every run once, however many experiments want it."""
        found: dict[str, Cell] = {}
        wanted = (each.settings(self.scale) for each in self.experiments)
        for setting in itertools.chain(*wanted, self.settings):
            for config in self.scale.configs(setting):
                data = config.data.model_copy(update={"dir": self.data_dir})
                cell = cell_of(config.model_copy(update={"data": data}), self.root)
                found.setdefault(cell.name, cell)
        return list(found.values())

    def missing(self) -> list[Cell]:
        return [cell for cell in self.cells() if not self.has(cell)]

    def has(self, cell: Cell) -> bool:
        """Whether a run is finished, here or in the archive."""
        here = Record.of(cell.directory, cell.config)
        return here is not None or self._archived(cell) is not None

    def bring(self) -> None:
        """Fetches from the archive what only it has."""
        for cell in self._unfinished():
            if (record := self._archived(cell)) is not None:
                record.archive(cell.directory)

    def put_away(self, cells: Sequence[Cell]) -> None:
        """Copies the records of finished runs to the archive, if there is one."""
        for cell in cells if self.archive is not None else ():
            if (record := Record.of(cell.directory, cell.config)) is not None:
                record.archive(self._shelf(cell))

    def perform(
        self,
        every_experiment: Sequence[Experiment],
        *,
        only: Cell | None = None,
        jobs: int = 0,
        cluster: RuntimeConfig | None = None,
        keep_states: bool = False,
        watch: Watcher | None = None,
    ) -> Results:
        """Runs what is missing, or of that only one cell.

        A finished run's states are removed once everything that any experiment measures on them
        is written down: a table would otherwise leave tens of gigabytes.
        """
        look = each_once(
            lambda cell: self.settle(cell, every_experiment, keep_states=keep_states), watch
        )
        cells = [cell for cell in self.missing() if only is None or cell.name == only.name]
        outcomes = run_cells(cells, jobs=jobs, watch=look, cluster=cluster)
        look({}, outcomes)
        reasons = {outcome.cell.name: outcome.reason for outcome in outcomes if outcome.reason}
        return Results(self.scale, self.root, reasons)

    def settle(
        self, cell: Cell, every_experiment: Sequence[Experiment], *, keep_states: bool
    ) -> None:
        """Measures and archives a run that has just ended, and removes its states."""
        if not keep_states:
            Keeper(Results(self.scale, self.root), every_experiment).settle(cell)
        self.put_away([cell])

    def _unfinished(self) -> list[Cell]:
        return [cell for cell in self.cells() if Record.of(cell.directory, cell.config) is None]

    def _archived(self, cell: Cell) -> Record | None:
        if self.archive is None or (cell.directory / "state").is_dir():
            return None  # a run that has begun here continues
        return Record.of(self._shelf(cell), cell.config)

    def _shelf(self, cell: Cell) -> Path:
        assert self.archive is not None
        return self.archive / "cells" / cell.name


class Keeper:
    """Measures what needs a run's states, then lets the states go."""

    def __init__(self, results: Results, experiments: Sequence[Experiment]) -> None:
        self._measures: dict[str, list[Measure]] = {}
        for experiment in experiments:
            for measure in experiment.measures:
                for setting in measure.settings(results.scale):
                    for cell in results.cells(setting):
                        self._measures.setdefault(cell.name, []).append(measure)

    def settle(self, cell: Cell) -> None:
        for measure in self._measures.get(cell.name, []):
            measure.of(cell.directory)
        with writing(cell.directory):
            shutil.rmtree(cell.directory / "state", ignore_errors=False)


def each_once(settle: Callable[[Cell], None], watch: Watcher | None) -> Watcher:
    """Watches runs as `watch` does, and settles each of them when it has finished."""
    settled: set[str] = set()

    def look(working: Mapping[str, int], outcomes: Sequence[Outcome]) -> None:
        if watch is not None:
            watch(working, outcomes)
        for outcome in outcomes:
            if outcome.run is not None and outcome.cell.name not in settled:
                settled.add(outcome.cell.name)
                settle(outcome.cell)

    return look
