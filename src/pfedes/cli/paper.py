"""`pfedes paper`: the paper's tables and figures, and our numbers beside the paper's."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

from pfedes.cli._display import facts, output
from pfedes.cli._options import CellNumber, Certificates, ClusterAddress, Count, DataDir, Jobs
from pfedes.cli._overview import Overview
from pfedes.cli._queue import kinds, run_queue
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.cli.compare import check_part
from pfedes.config import configure
from pfedes.config.runtime import RuntimeConfig
from pfedes.errors import ConfigError, MethodError, StoreError, unknown
from pfedes.files import at_home
from pfedes.formatting import clock, count
from pfedes.reproduction.estimate import estimate, round_seconds
from pfedes.reproduction.experiment import Exhibit, Experiment, Results
from pfedes.reproduction.experiments import experiment_named, experiments
from pfedes.reproduction.record import Record
from pfedes.reproduction.runner import Campaign
from pfedes.reproduction.scale import SCALES, scale_named
from pfedes.reproduction.scenario import LISTED
from pfedes.reproduction.writer import marked, write
from pfedes.results.table import Table
from pfedes.sweep.cells import Cell, nth


def paper(
    name: Annotated[
        str,
        typer.Argument(
            metavar="list|all|queue|NAME",
            help="'list' names the experiments, 'all' does every one, 'queue' runs what the "
            "published results are made from, at the lowest priority.",
            show_default=False,
        ),
    ],
    *,
    scale: Annotated[str, typer.Option(help="smoke, laptop, converged or full.")] = "smoke",
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what would be run, how long and how much; no more.")
    ] = False,
    draw: Annotated[
        bool,
        typer.Option("--draw", "--collect", help="Train nothing: show what has been run so far."),
    ] = False,
    data_dir: DataDir = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where runs and results go; runs/paper-SCALE if not given, runs/results for the "
            "queue."
        ),
    ] = None,
    jobs: Jobs = 0,
    cluster: ClusterAddress = None,
    tls: Certificates = None,
    cell: CellNumber = None,
    count: Count = False,
    keep_states: Annotated[
        bool, typer.Option("--keep-states", help="Keep all clients' models of finished runs.")
    ] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            help="Keep configurations, results and rows of finished runs there too, and run "
            "nothing again that is finished there."
        ),
    ] = None,
    against: Annotated[
        str, typer.Option(help="Method to which differences are shown; the best baseline if none.")
    ] = "",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the pages.")] = False,
) -> None:
    """Repeat a table or figure of the paper.

    What is finished is not run again, and experiments share their runs: give the same --out. Each
    experiment gets a directory with a page (README.md), tables as Markdown, CSV and LaTeX, and
    figures as PNG, SVG and PDF.
    """
    if name == "list":
        list_experiments()
        return
    if name == "queue":
        run_queue(
            out,
            data_dir=data_dir,
            plan=plan,
            jobs=jobs,
            keep_states=keep_states,
            archive=archive,
            quiet=quiet,
        )
        return
    run_experiments(
        name,
        scale,
        out,
        data_dir=data_dir,
        plan=plan,
        draw=draw,
        cell=cell,
        count=count,
        jobs=jobs,
        cluster=cluster,
        tls=tls,
        keep_states=keep_states,
        archive=archive,
        against=against,
        quiet=quiet,
    )


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
    against: str,
    quiet: bool,
) -> None:
    """Runs what is missing in sight of the user, then shows and writes everything."""
    if plan and draw:
        raise ConfigError("--plan trains nothing and --draw trains nothing: give one of them")
    check_part(cell, collect=draw, count=count, out=out or Path())
    if against and against not in LISTED:
        raise ConfigError(unknown("method", against, LISTED))
    runtime = configure(cluster=cluster, tls=tls).runtime if cluster else None
    chosen = list(experiments().values()) if name == "all" else [experiment_named(name)]
    scale = scale_named(scale_name)
    root = out or Path("runs") / f"paper-{scale.name}"
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} exists and is not a directory: choose another --out")
    data = str(at_home(data_dir).absolute()) if data_dir else ""
    work = Campaign(chosen, scale, root, data, archive)
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
        results.against = against
        _show(work, results, quiet)


def _show(work: Campaign, results: Results, quiet: bool) -> None:
    for experiment in work.experiments:
        if len(work.experiments) > 1 and (finished := _too_little(experiment, results)):
            if not quiet:
                output().print(f"{experiment.name}: {finished}, no page yet")
            continue
        exhibit = marked(experiment.show(results), experiment, results.scale)
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
    work: Campaign,
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


def _print_plan(work: Campaign, jobs: int) -> None:
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
        output().print(kinds(missing))
    for text in work.scale.deviations:
        output().print(f"- {text}")


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
