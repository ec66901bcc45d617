"""What `pfedes paper` shows while it works and when it is done."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as RichTable

from pfedes.cli.comparing import Overview, check_part
from pfedes.cli.display import clock, facts, output
from pfedes.cli.interrupted import Interrupted, interruptible
from pfedes.config import configure
from pfedes.errors import ConfigError, MethodError, StoreError
from pfedes.fleet.base import RuntimeConfig
from pfedes.home import at_home
from pfedes.paper import experiment_named, experiments
from pfedes.paper.estimate import estimate, round_seconds
from pfedes.paper.experiment import Exhibit, Experiment, Results
from pfedes.paper.performing import Work
from pfedes.paper.record import Record
from pfedes.paper.scale import SCALES, scale_named
from pfedes.paper.writing import write
from pfedes.report.formats import count
from pfedes.sweep import Cell, nth
from pfedes.table import Table

LEAST_SHOWN = 0.25
"""Of an experiment's runs. Experiments share runs, so that most have one long before their own."""


def list_experiments() -> None:
    """Every experiment, and every scale."""
    table = RichTable("name", "what it shows", "in the paper", box=None, pad_edge=False)
    for name, experiment in experiments().items():
        table.add_row(name, experiment.title, experiment.source)
    output().print(table)
    output().print()
    scales = RichTable("--scale", "", box=None, pad_edge=False)
    for scale in SCALES.values():
        scales.add_row(scale.name, scale.about)
    output().print(scales)


def run_experiments(
    name: str,
    scale_name: str,
    out: Path | None,
    *,
    data_dir: Path | None,
    plan: bool,
    draw: bool,
    cell: int | None,
    count: bool,
    jobs: int,
    cluster: str | None,
    tls: Path | None,
    keep_states: bool,
    archive: Path | None,
    quiet: bool,
) -> None:
    """Runs what is missing in sight of the user, then shows and writes everything."""
    if plan and draw:
        raise ConfigError("--plan trains nothing and --draw trains nothing: give one of them")
    check_part(cell, collect=draw, count=count, out=out or Path())
    runtime = configure(cluster=cluster, tls=tls).runtime if cluster else None
    chosen = list(experiments().values()) if name == "all" else [experiment_named(name)]
    scale = scale_named(scale_name)
    root = out or Path("runs") / f"paper-{scale.name}"
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} exists and is not a directory: choose another --out")
    data = str(at_home(data_dir).absolute()) if data_dir else ""
    work = Work(chosen, scale, root, data, archive)
    if plan:
        _print_plan(work, jobs)
        return
    if count:
        print(len(work.cells()))
        return
    work.bring()
    if cell is not None:
        only = nth(work.cells(), cell)
        results = _perform(work, only, jobs, runtime, keep_states, quiet)
        if Record.of(only.directory, only.config) is None:
            raise MethodError(f"{only.name}: {results.reason_of(only)}")
        print(only.directory)
    else:
        results = Results(scale, root)
        if not draw:
            results = _perform(work, None, jobs, runtime, keep_states, quiet)
        _show(work, results, quiet)


def _show(work: Work, results: Results, quiet: bool) -> None:
    for experiment in work.experiments:
        if len(work.experiments) > 1 and (finished := _too_little(experiment, results)):
            if not quiet:
                output().print(f"{experiment.name}: {finished}, no page yet")
            continue
        exhibit = experiment.show(results)
        written = write(exhibit, experiment, results)
        if quiet:
            print(written[0])
        else:
            _print(experiment, exhibit, written[0])
    work.put_away(work.cells())


def _too_little(experiment: Experiment, results: Results) -> str:
    """How little of an experiment has been run, where that is not worth a page among others."""
    wanted = experiment.settings(results.scale)
    finished = len(results.records(wanted))
    return f"{finished} of {len(wanted)} runs" if finished < LEAST_SHOWN * len(wanted) else ""


def _perform(
    work: Work,
    only: Cell | None,
    jobs: int,
    cluster: RuntimeConfig | None,
    keep_states: bool,
    quiet: bool,
) -> Results:
    missing = work.missing() if only is None else [only]
    progress = None
    if missing and not quiet:
        progress = Overview(missing, lambda cell: round_seconds(cell.config))
    try:
        with interruptible():
            return work.perform(
                list(experiments().values()),
                only=only,
                jobs=jobs,
                cluster=cluster,
                keep_states=keep_states,
                watch=progress,
            )
    except KeyboardInterrupt:
        again = f"the same command with --out {work.root}"
        raise Interrupted(f"stopped; {again} goes on") from None
    finally:
        if progress is not None:
            progress.stop()


def _print_plan(work: Work, jobs: int) -> None:
    cells, missing = work.cells(), work.missing()
    expected = estimate(missing, jobs)
    rows = {
        "experiments": ", ".join(experiment.name for experiment in work.experiments),
        "scale": f"{work.scale.name}: {work.scale.about}",
        "runs": f"{len(cells)}, of which {len(cells) - len(missing)} are finished",
        "time": f"about {clock(expected.seconds)} for the others, as busy as the machine is now",
        "disk": f"{count(expected.largest_state)}B while they run; "
        f"{count(expected.all_states)}B with --keep-states",
    }
    output().print(facts(rows))
    if missing:
        output().print()
        output().print(_kinds(missing))
    for text in work.scale.deviations:
        output().print(f"- {text}")


def _kinds(cells: Sequence[Cell]) -> RichTable:
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
        kinds.setdefault(kind, []).append(cell.rounds * round_seconds(config))
    for key, times in kinds.items():
        table.add_row(str(len(times)), *key, clock(sum(times) / len(times)))
    return table


def _print(experiment: Experiment, exhibit: Exhibit, page: Path) -> None:
    output().print(f"{experiment.title} ({experiment.source})")
    for table in exhibit.tables.values():
        output().print()
        output().print(_shown(table))
        for note in table.notes:
            output().print(note)
    output().print()
    for note in exhibit.notes:
        output().print(f"- {note}")
    output().print(f"page: {page}", soft_wrap=True)
    output().print()


def _shown(table: Table) -> RichTable:
    shown = RichTable(box=None, pad_edge=False, padding=(0, 1))
    for heading, number in zip(table.columns, table.numeric(), strict=True):
        shown.add_column(
            heading.replace(": ", "\n"), justify="right" if number else "left", overflow="fold"
        )
    for row in table.rows:
        shown.add_row(*row)
    return shown
