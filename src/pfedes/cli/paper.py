"""`pfedes paper`: the paper's tables and figures, and our numbers beside the paper's."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli.options import CellNumber, Certificates, ClusterAddress, Count, DataDir, Jobs


def paper(
    name: Annotated[
        str,
        typer.Argument(
            metavar="list|all|NAME",
            help="'list' names the experiments, 'all' does every one.",
            show_default=False,
        ),
    ],
    *,
    scale: Annotated[str, typer.Option(help="smoke, laptop or full.")] = "smoke",
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
        typer.Option(help="Where runs and results go; runs/paper-SCALE if not given."),
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
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the pages.")] = False,
) -> None:
    """Repeat a table or figure of the paper.

    What is finished is not run again, and experiments share their runs: give the same --out. Each
    experiment gets a directory with a page (README.md), tables as Markdown, CSV and LaTeX, and
    figures as PNG, SVG and PDF.
    """
    from pfedes.cli.papering import list_experiments, run_experiments

    if name == "list":
        list_experiments()
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
        quiet=quiet,
    )
