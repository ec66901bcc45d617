"""The command line, with one file per command. The library can do all that commands do.

Commands are imported when they are called, so that `pfedes --help` answers at once.
"""

import logging
import sys
import traceback
from contextlib import suppress

import typer
from typer.main import get_command

from pfedes.cli._lazy import LazyGroup
from pfedes.cli._signals import Interrupted
from pfedes.errors import PfedesError
from pfedes.fleet.early import dismiss
from pfedes.formatting import plain
from pfedes.version import __version__

DEBUG = "--debug"

WHAT_NEXT = """\
pfedes: personalized federated learning, every client with a model of its own.

What to do next:

    pfedes run            train ten clients on digits, in about a minute
    pfedes new my-study   make a project with your own models and data
    pfedes compare --methods standalone,pfedes
                          compare methods on equal terms
    pfedes rehearse       try a federation across processes, on this machine
    pfedes --help         list all commands"""

app = typer.Typer(
    cls=LazyGroup,
    help="Personalized federated learning in which every client keeps its own model.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    debug: bool = typer.Option(
        False,
        DEBUG,
        help="Show tracebacks and all log messages; may be given anywhere in the command.",
    ),
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    if context.invoked_subcommand is None:
        print(WHAT_NEXT)


def execute(arguments: list[str]) -> int:
    """Runs a command line. A user's mistake is one line on standard error, never a traceback."""
    debug = DEBUG in arguments
    _show_log(debug=debug)
    arguments = [argument for argument in arguments if argument != DEBUG]
    try:
        outcome = get_command(app).main(arguments, prog_name="pfedes", standalone_mode=False)
    except PfedesError as error:
        if debug:
            traceback.print_exception(error)
        return _complain(str(error), error.exit_code)
    except Interrupted as stop:
        return _complain(str(stop), 130)
    except Exception as error:
        # The usage errors of the command-line parser, whose class has moved between releases.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _complain(error.format_message() or "see 'pfedes --help'")
        raise
    finally:
        dismiss()
    return outcome if isinstance(outcome, int) else 0


def _show_log(*, debug: bool) -> None:
    """Shows warnings of the library as one line each; with --debug, all log messages."""
    handler = logging.StreamHandler()
    if debug:
        handler.setFormatter(logging.Formatter("pfedes: %(levelname)s: %(message)s"))
    else:
        handler.setLevel(logging.WARNING)
        handler.setFormatter(logging.Formatter("pfedes: warning: %(message)s"))
        # A failed client is reported by the display; its traceback belongs into run.log.
        handler.addFilter(lambda record: record.exc_info is None)
    logging.getLogger("pfedes").handlers = [handler]


def _complain(message: str, code: int = 2) -> int:
    with suppress(OSError):  # the terminal may be closed
        print("pfedes:", plain(" ".join(message.split())), file=sys.stderr)
    return code
