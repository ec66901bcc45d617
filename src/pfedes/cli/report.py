"""`pfedes report`: the page of a run, and of several runs side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pfedes.api.spectator import working
from pfedes.cli._display import warned_before
from pfedes.cli._options import MovedData, TrustCode
from pfedes.errors import ConfigError, DamageError, DiskError
from pfedes.files import publish
from pfedes.report.comparison import render_comparison
from pfedes.report.output import publish_results, result_files
from pfedes.results.places import run_directories
from pfedes.results.run import open_run


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Run directories, or directories with runs in them.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the comparison of several runs; by default comparison.html in DIR, "
            "or in the current directory if several are given.",
            show_default=False,
        ),
    ] = None,
    data_dir: MovedData = None,
    trust_code: TrustCode = False,
) -> None:
    """Write report.html and summary.json of each run, even while it is running.

    Several runs are also compared on a page. Every page is a single file that opens offline.
    """
    for page in write_reports(directories, out, data_dir, trust_code=trust_code):
        print(page)


def write_reports(
    directories: Sequence[Path],
    out: Path | None,
    data_dir: Path | None = None,
    *,
    trust_code: bool = False,
) -> list[Path]:
    """Writes a page for each run and, of several, their comparison; returns where they are."""
    runs = [
        open_run(place, data_dir=data_dir, trust_code=trust_code)
        for place in run_directories(directories)
    ]
    if len(runs) == 1 and out is not None:
        raise ConfigError(
            f"--out is for the comparison of several runs, but only {runs[0].directory} was given"
        )
    comparison = out or _common_place(directories) / "comparison.html"
    if len(runs) > 1 and (comparison.is_dir() or not comparison.parent.is_dir()):
        raise DiskError(f"cannot write {comparison}: it must be a file in a directory that exists")
    with working() as progress, warned_before():
        # All before the first is written: where one cannot be made, none is.
        pages = []
        for done, run in enumerate(runs):
            progress("making reports", done, len(runs))
            try:
                pages.append(result_files(run))
            except DamageError as error:
                raise DamageError(f"{error}; {run.store.way_back()}") from None
        compared = render_comparison(runs, comparison) if len(runs) > 1 else None
        progress("making reports", len(runs), len(runs))
    written = []
    for run, files in zip(runs, pages, strict=True):
        publish_results(run, files)
        written.append(run.directory / "report.html")
    if compared is not None:
        publish(comparison, compared.encode(errors="replace"))
        written.append(comparison)
    return written


def _common_place(directories: Sequence[Path]) -> Path:
    """The place of a comparison without --out: beside its runs, if they lie in one place."""
    if len(directories) == 1 and directories[0].is_dir():
        return directories[0]
    return Path()
