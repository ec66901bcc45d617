"""Many runs as one job that can be interrupted and continues where it was."""

import os
from collections.abc import Sequence
from contextlib import closing

from pfedes.config.runtime import RuntimeConfig
from pfedes.sweep.cells import Cell, CellRunner, Outcome, Watcher, outcome_of
from pfedes.sweep.local import LocalRunner


def run_cells(
    cells: Sequence[Cell],
    *,
    jobs: int = 0,
    watch: Watcher | None = None,
    cluster: RuntimeConfig | None = None,
    idle: bool = False,
) -> list[Outcome]:
    """Runs what is not finished yet, several at a time, in processes of their own.

    One cell's crash is that cell's failure. The processes end when this one does. They are on this
    machine, or on those of a cluster, from where finished runs are brought to their directories.
    With `idle` those on this machine get only the time that no other process wants.
    """
    outcomes = {cell.name: outcome_of(cell) for cell in cells if cell.finished()}
    waiting = [cell for cell in cells if cell.name not in outcomes]
    if waiting:
        with closing(_crew(waiting, jobs, cluster, idle)) as crew:
            while crew.open:
                for outcome in crew.step():
                    outcomes[outcome.cell.name] = outcome
                if watch is not None:
                    watch(crew.working(), list(outcomes.values()))
    return [outcomes[cell.name] for cell in cells]


def _crew(cells: list[Cell], jobs: int, cluster: RuntimeConfig | None, idle: bool) -> CellRunner:
    if cluster is None:
        return LocalRunner(cells, jobs or os.cpu_count() or 1, idle=idle)
    # Imported where used: it is an extra.
    from pfedes.sweep.dask import ClusterRunner

    return ClusterRunner(cells, jobs, cluster)
