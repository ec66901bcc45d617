"""What `pfedes report` does: finds the runs, makes all pages, then writes them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pfedes.cli.display import warned_before, working
from pfedes.errors import ConfigError, DamageError, DiskError
from pfedes.files import publish
from pfedes.report.comparison import render_comparison
from pfedes.run import open_run


def write_reports(directories: Sequence[Path], out: Path | None) -> list[Path]:
    """Writes a page for each run and, of several, their comparison; returns where they are."""
    runs = [open_run(place) for place in _places(directories)]
    if len(runs) == 1 and out is not None:
        raise ConfigError(
            f"--out is for the comparison of several runs, and {runs[0].directory} is one"
        )
    comparison = out or Path("comparison.html")
    if len(runs) > 1 and (comparison.is_dir() or not comparison.parent.is_dir()):
        raise DiskError(f"cannot write {comparison}: it must be a file in a directory that exists")
    with working() as progress, warned_before():
        # All before the first is written: where one cannot be made, none is.
        pages = []
        for done, run in enumerate(runs):
            progress("making reports", done, len(runs))
            try:
                pages.append(run.results())
            except DamageError as error:
                raise DamageError(f"{error}; {run.store.way_back()}") from None
        compared = render_comparison(runs, comparison) if len(runs) > 1 else None
        progress("making reports", len(runs), len(runs))
    written = []
    for run, files in zip(runs, pages, strict=True):
        for name, content in files.items():
            publish(run.directory / name, content)
        written.append(run.directory / "report.html")
    if compared is not None:
        publish(comparison, compared.encode(errors="replace"))
        written.append(comparison)
    return written


def _places(directories: Sequence[Path]) -> Iterator[Path]:
    """The run directories that are meant, each once."""
    seen: set[Path] = set()
    for directory in directories:
        for place in _runs_of(directory):
            if (resolved := place.resolve()) not in seen:
                seen.add(resolved)
                yield place


def _runs_of(directory: Path) -> list[Path]:
    """Itself; or what a comparison left in it, METHOD/seed-S and METHOD/POINT/seed-S."""
    if (directory / "state").is_dir():
        return [directory]
    found = [
        place
        for pattern in ("*/seed-*", "*/*/seed-*")
        for place in directory.glob(pattern)
        if (place / "state" / "manifests").is_dir()
    ]
    return sorted(found) or [directory]  # opening what is no run says so
