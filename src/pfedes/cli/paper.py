"""`pfedes paper`: the paper's tables and figures, and our numbers beside the paper's."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

from pfedes.api.paper import PaperPage, campaign_of, pages, perform
from pfedes.cli._display import facts, output
from pfedes.cli._options import CellNumber, Certificates, ClusterAddress, Count, DataDir, Jobs
from pfedes.cli._queue import kinds, measured, run_queue
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.cli.compare import check_part
from pfedes.config import configure
from pfedes.config.runtime import RuntimeConfig
from pfedes.errors import ConfigError
from pfedes.formatting import clock, count
from pfedes.reproduction.experiment import Results
from pfedes.reproduction.experiments import experiments
from pfedes.reproduction.runner import Campaign
from pfedes.reproduction.scale import ALL, SCALES
from pfedes.results.table import Table
from pfedes.sweep.cells import nth


def paper(
    name: Annotated[
        str,
        typer.Argument(
            metavar="list|all|queue|NAME",
            help="Name of an experiment. 'list' prints the names, 'all' runs every experiment, "
            "'queue' runs everything behind the published results at the lowest priority.",
            show_default=False,
        ),
    ],
    *,
    scale: Annotated[str, typer.Option(help="Scale: smoke, laptop, converged or full.")] = "smoke",
    methods: Annotated[
        str,
        typer.Option(
            help="Methods in the tables and figures that compare methods: names separated by "
            "commas; 'all' stands for those of the experiment."
        ),
    ] = ALL,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Only print what would run, how long it takes and how much space it needs.",
        ),
    ] = False,
    draw: Annotated[
        bool,
        typer.Option("--draw", "--collect", help="Train nothing; show the results so far."),
    ] = False,
    data_dir: DataDir = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory of runs and results; by default runs/paper-SCALE, runs/results for the "
            "queue."
        ),
    ] = None,
    jobs: Jobs = 0,
    cluster: ClusterAddress = None,
    tls: Certificates = None,
    cell: CellNumber = None,
    count: Count = False,
    keep_states: Annotated[
        bool, typer.Option("--keep-states", help="Keep the models of all clients of finished runs.")
    ] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            help="Directory that also keeps the configurations, results and rows of finished "
            "runs; finished runs are taken from it and not repeated."
        ),
    ] = None,
    against: Annotated[
        str, typer.Option(help="Method to compare with; by default the best baseline.")
    ] = "",
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the pages.")] = False,
) -> None:
    """Repeat a table or figure of the paper.

    Finished runs are not repeated, and experiments with the same --out share their runs. Each
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
    if plan and draw:
        raise ConfigError("--plan and --draw exclude each other: give one of them")
    check_part(cell, collect=draw, count=count, out=out or Path())
    run_experiments(
        campaign_of(name, scale, methods, out, data_dir, archive, against),
        against=against,
        plan=plan,
        draw=draw,
        cell=cell,
        count=count,
        jobs=jobs,
        cluster=configure(cluster=cluster, tls=tls).runtime if cluster or tls else None,
        keep_states=keep_states,
        quiet=quiet,
    )


def list_experiments() -> None:
    """Every experiment, and every scale."""
    table = RichTable("name", "contents", "in the paper", box=None, pad_edge=False)
    for name, experiment in experiments().items():
        table.add_row(name, experiment.title, experiment.source)
    output().print(table)
    output().print()
    scales = RichTable("--scale", "", box=None, pad_edge=False)
    for scale in SCALES.values():
        scales.add_row(scale.name, scale.about)
    output().print(scales)


def run_experiments(
    work: Campaign,
    *,
    against: str,
    plan: bool,
    draw: bool,
    cell: int | None,
    count: bool,
    jobs: int,
    cluster: RuntimeConfig | None,
    keep_states: bool,
    quiet: bool,
) -> None:
    """Runs what is missing with a progress display, then shows and writes everything."""
    if plan:
        _print_plan(work, jobs)
        return
    if count:
        print(len(work.cells()))
        return
    work.bring()
    if draw:
        _show(work, Results(work.scale, work.root), against, quiet)
        return
    only = nth(work.cells(), cell) if cell is not None else None
    try:
        with interruptible():
            results = perform(
                work, only, jobs=jobs, cluster=cluster, keep_states=keep_states, quiet=quiet
            )
    except KeyboardInterrupt:
        again = f"the same command with --out {work.root}"
        raise Interrupted(f"stopped; {again} continues") from None
    if only is None:
        _show(work, results, against, quiet)
    else:
        print(only.directory)


def _show(work: Campaign, results: Results, against: str, quiet: bool) -> None:
    for page in pages(work, results, against):
        if quiet:
            print(*page.files[:1], sep="\n", end="\n" if page.files else "")
        elif not page.files:
            output().print(f"{page.name}: {page.notes[0]}")
        else:
            _print(page)


def _print_plan(work: Campaign, jobs: int) -> None:
    cells, missing = work.cells(), work.missing()
    estimator = measured(missing)
    expected = estimator.whole(missing, jobs)
    rows = {
        "experiments": ", ".join(experiment.name for experiment in work.experiments),
        "scale": f"{work.scale.name}: {work.scale.about}",
        "runs": f"{len(cells)}, of which {len(cells) - len(missing)} are finished",
        "time": (
            f"about {clock(expected.seconds)} for the others, with the machine as busy as it is now"
        ),
        "disk": f"{count(expected.largest_state)}B while they run; "
        f"{count(expected.all_states)}B with --keep-states",
    }
    output().print(facts(rows))
    if missing:
        output().print()
        output().print(kinds(missing, estimator))
    for text in work.scale.deviations:
        output().print(f"- {text}")


def _print(page: PaperPage) -> None:
    output().print(f"{page.title} ({page.source})")
    for table in page.tables.values():
        output().print()
        output().print(_shown(table))
        for note in table.notes:
            output().print(note)
    output().print()
    for note in page.notes:
        output().print(f"- {note}")
    output().print(f"page: {page.files[0]}", soft_wrap=True)
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
