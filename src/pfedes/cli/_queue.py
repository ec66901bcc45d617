"""What `pfedes paper queue` shows while it works."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as RichTable

from pfedes.api.overview import Overview
from pfedes.api.spectator import Spectator
from pfedes.cli._display import output
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.errors import MethodError
from pfedes.files import at_home
from pfedes.formatting import clock
from pfedes.reproduction.estimate import Estimator, samples_seen
from pfedes.reproduction.experiments import experiments
from pfedes.reproduction.queue import Queue
from pfedes.sweep.cells import Cell


def measured(cells: Sequence[Cell]) -> Estimator:
    """Measures the cost of the runs, with a progress display."""
    estimator, spectator = Estimator(), Spectator()
    try:
        estimator.measure(cells, spectator.working)
    finally:
        spectator.stop()
    return estimator


def kinds(cells: Sequence[Cell], estimator: Estimator) -> RichTable:
    """The runs, those that differ in little taken together."""
    table = RichTable(
        "runs", "method", "data", "N", "rounds", "time each", box=None, pad_edge=False
    )
    kinds: dict[tuple[str, ...], list[float]] = {}
    for cell in cells:
        config = cell.config
        kind = (
            config.method.name,
            config.data.source.partition(":")[0],
            str(config.partition.clients),
            str(config.train.rounds),
        )
        kinds.setdefault(kind, []).append(estimator.seconds(cell))
    for key, times in kinds.items():
        table.add_row(str(len(times)), *key, clock(sum(times) / len(times)))
    return table


def run_queue(
    out: Path | None,
    *,
    data_dir: Path | None,
    plan: bool,
    jobs: int,
    keep_states: bool,
    archive: Path | None,
    quiet: bool,
) -> None:
    """Runs what is missing of the published results, or says what that is."""
    root = out or Path("runs") / "results"
    queue = Queue(root, archive, str(at_home(data_dir).absolute()) if data_dir else "")
    if plan or not quiet:
        _print_stages(queue, jobs, plan=plan)
    if plan:
        return
    missing = queue.missing()
    progress = None
    if missing:
        progress = Overview(missing, lambda cell: samples_seen(cell.config))
    try:
        with interruptible():
            failed = queue.perform(
                list(experiments().values()),
                jobs=jobs,
                keep_states=keep_states,
                watch=None if quiet else progress,
            )
    except KeyboardInterrupt:
        raise Interrupted("stopped; run the same command again to continue") from None
    finally:
        if progress is not None:
            progress.stop()
    for name, reason in failed.items():
        raise MethodError(f"{len(failed)} runs failed, the first is {name}: {reason}")


def _print_stages(queue: Queue, jobs: int, *, plan: bool) -> None:
    table = RichTable("", "description", "scale", "finished", box=None, pad_edge=False)
    estimator = measured(queue.missing()) if plan else Estimator()
    if plan:
        table.add_column("time for the rest")
    for name, stage in queue.stages.items():
        cells, missing = queue.cells(name), queue.missing(name)
        finished = f"{len(cells) - len(missing)} of {len(cells)}"
        time = [clock(estimator.whole(missing, jobs).seconds)] if plan else []
        table.add_row(name, stage.about, stage.scale.name, finished, *time)
    output().print(table)
    if plan and (missing := queue.missing()):
        output().print()
        output().print(kinds(missing, estimator))
