"""Output of the commands: progress on standard error, results on standard output."""

import json as json_module
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from pfedes.api.spectator import spectators
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.errors import FailedRunError, StoreError
from pfedes.federation.listener import Listener
from pfedes.federation.loop import Federation
from pfedes.results.closing import closing_rows
from pfedes.results.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def output() -> Console:
    """Standard output; a pipe gets whole lines, a terminal its own width."""
    # Without emoji: a method's name such as mine:Bug: must not become a picture.
    width = None if sys.stdout.isatty() else 100
    return Console(width=width, highlight=False, markup=False, emoji=False)


def watch(
    begin: Callable[[Listener], Federation],
    *,
    quiet: bool,
    json: bool,
    track: Sequence[str] | None = None,
) -> None:
    """Runs a federation, shows its progress and prints its result."""
    with spectators(track=track or (), quiet=quiet or json) as listener:
        federation = begin(listener)
        try:
            with interruptible():
                run = federation.run()
        except KeyboardInterrupt:
            raise Interrupted(_how_to_resume(federation.directory)) from None
    if json:
        print(json_module.dumps({**run.summary, "directory": str(run.directory)}, indent=2))
    elif quiet:
        print(run.directory)
    else:
        print_result(run)
    if run.rounds and not run.trained:
        raise FailedRunError(f"{run.why_untrained()}. The accuracies are those of untrained models")


def print_result(run: Run) -> None:
    """The closing table."""
    output().print(facts(closing_rows(run)))


def facts(rows: Mapping[str, str]) -> Table:
    """Two columns: what, and its value."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def save_figure(figure: "Figure", path: Path) -> None:
    """Writes a figure in the format that its name ends with."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from None
    except ValueError as error:
        raise StoreError(f"cannot write {path}: {str(error).splitlines()[0]}") from None


@contextmanager
def warned_before() -> Iterator[None]:
    """Suppresses warnings that users already saw when they made the run."""
    logger = logging.getLogger("pfedes")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _how_to_resume(directory: Path) -> str:
    if (directory / "state").is_dir():
        return f"stopped; 'pfedes resume {directory}' continues after the last complete round"
    return "stopped before the first round; nothing was written"
