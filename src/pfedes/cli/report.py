"""`pfedes report`: the page of a run."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run directories.", show_default=False)
    ],
) -> None:
    """Write report.html (and summary.json) anew, also while a run goes on."""
    from pfedes.run import open_run

    for run in [open_run(directory) for directory in directories]:
        run.write_results()
        print(run.directory / "report.html")
