"""Running what experiments want, once each, and keeping what is worth keeping."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pfedes.files import writing
from pfedes.fleet.base import RuntimeConfig
from pfedes.paper.experiment import Experiment, Measure, Results, cell_of
from pfedes.paper.record import Record
from pfedes.paper.scale import Scale
from pfedes.sweep import Cell, Outcome, Watcher, run_cells


@dataclass(frozen=True)
class Work:
    """The runs of some experiments at one scale, below one directory."""

    experiments: Sequence[Experiment]
    scale: Scale
    root: Path
    data_dir: str = ""

    def cells(self) -> list[Cell]:
        """Every run once, however many experiments want it."""
        found: dict[str, Cell] = {}
        for experiment in self.experiments:
            for setting in experiment.settings(self.scale):
                for config in self.scale.configs(setting):
                    data = config.data.model_copy(update={"dir": self.data_dir})
                    cell = cell_of(config.model_copy(update={"data": data}), self.root)
                    found.setdefault(cell.name, cell)
        return list(found.values())

    def missing(self) -> list[Cell]:
        return [cell for cell in self.cells() if Record.of(cell.directory, cell.config) is None]

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
        results = Results(self.scale, self.root)
        keeper = None if keep_states else Keeper(results, every_experiment)
        told: set[str] = set()

        def look(working: Mapping[str, int], outcomes: Sequence[Outcome]) -> None:
            if watch is not None:
                watch(working, outcomes)
            for outcome in outcomes:
                if keeper is not None and outcome.run is not None and outcome.cell.name not in told:
                    told.add(outcome.cell.name)
                    keeper.settle(outcome.cell)

        cells = [cell for cell in self.missing() if only is None or cell.name == only.name]
        outcomes = run_cells(cells, jobs=jobs, watch=look, cluster=cluster)
        look({}, outcomes)
        reasons = {outcome.cell.name: outcome.reason for outcome in outcomes if outcome.reason}
        return Results(self.scale, self.root, reasons)


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
