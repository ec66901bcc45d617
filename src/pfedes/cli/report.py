"""`pfedes report`: the page of a run, and of several runs side by side."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Run directories, or directories that 'pfedes compare' made.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the comparison of several runs goes; comparison.html if not given.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write report.html (and summary.json) of each run anew, also while it goes on.

    Several runs are compared on one more page. Every page is one file that opens offline.
    """
    from pfedes.cli.reporting import write_reports

    for page in write_reports(directories, out):
        print(page)
