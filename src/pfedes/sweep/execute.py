"""Many runs as one job that can be interrupted and continues where it was."""

import os
from collections.abc import Sequence

from pfedes.config.runtime import RuntimeConfig
from pfedes.federation.loop import Selector, uniform
from pfedes.methods import of_this_program
from pfedes.sweep.cells import Cell, CellRunner, Outcome, Watcher, outcome_of
from pfedes.sweep.here import HereRunner
from pfedes.sweep.local import LocalRunner


def run_cells(
    cells: Sequence[Cell],
    *,
    jobs: int = 0,
    watch: Watcher | None = None,
    cluster: RuntimeConfig | None = None,
    idle: bool = False,
    select: Selector = uniform,
) -> list[Outcome]:
    """Runs what is not finished yet, several at a time, in processes of their own.

    One cell's crash is that cell's failure. The processes end when this one does. They are on this
    machine, or on those of a cluster, from where finished runs are brought to their directories.
    With `idle` those on this machine get only the time that no other process wants. Cells with
    methods or functions that this program defines run in this process, one after another, and so
    do all where `select` is not the usual one.
    """
    outcomes = {cell.name: outcome_of(cell) for cell in cells if cell.finished()}
    waiting = [cell for cell in cells if cell.name not in outcomes]
    here = [c for c in waiting if select is not uniform or of_this_program(c.config.method)]
    elsewhere = [cell for cell in waiting if cell not in here]
    runners: list[CellRunner] = []

    def look() -> None:
        """Moves the processes on, and tells."""
        for runner in runners:
            if not isinstance(runner, HereRunner):
                outcomes.update({outcome.cell.name: outcome for outcome in runner.step()})
        if watch is not None:
            working = {name: done for r in runners for name, done in r.working().items()}
            watch(working, list(outcomes.values()))

    try:
        if elsewhere:
            runners.append(_runner(elsewhere, jobs, cluster, idle, beside=bool(here)))
        one_at_a_time = jobs == 1 and cluster is None
        while one_at_a_time and any(runner.open for runner in runners):
            look()
        if here:
            runners.append(HereRunner(here, select, look))
            while runners[-1].open:
                outcomes.update({outcome.cell.name: outcome for outcome in runners[-1].step()})
                look()
        while any(runner.open for runner in runners):
            look()
    finally:
        for runner in runners:
            runner.close()
    return [outcomes[cell.name] for cell in cells]


def _runner(
    cells: list[Cell], jobs: int, cluster: RuntimeConfig | None, idle: bool, *, beside: bool
) -> CellRunner:
    """Runs cells in other processes; `beside` runs in this process, which is one job."""
    if cluster is None:
        jobs = jobs or os.cpu_count() or 1
        return LocalRunner(cells, max(1, jobs - beside), idle=idle)
    # Imported where used: it is an extra.
    from pfedes.sweep.dask import ClusterRunner

    return ClusterRunner(cells, jobs, cluster)
