"""The command line. One file per command; what they do, the library can do too.

Only light modules are imported here, so that `pfedes --help` answers at once.
"""

import logging
import sys

import typer
from typer.main import get_command

from pfedes.cli import (
    admit,
    adopt,
    check,
    compare,
    config,
    data,
    export,
    join,
    paper,
    predict,
    rehearse,
    report,
    request,
    resume,
    run,
    serve,
    status,
)
from pfedes.cli.interrupted import Interrupted
from pfedes.errors import PfedesError

app = typer.Typer(
    help="Personalized federated learning in which every client keeps a model of its own.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.command("run")(run.run)
app.command("resume")(resume.resume)
app.command("compare")(compare.compare)
app.command("paper")(paper.paper)
app.command("adopt")(adopt.adopt)
app.command("check")(check.check)
app.command("report")(report.report)
app.command("predict")(predict.predict)
app.command("export")(export.export)
app.command("serve")(serve.serve)
app.command("join")(join.join)
app.command("request")(request.request)
app.command("admit")(admit.admit)
app.command("status")(status.status)
app.command("rehearse")(rehearse.rehearse)
app.command("config")(config.config)
app.add_typer(data.app, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        from pfedes import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    pass


def execute(arguments: list[str]) -> int:
    """Runs a command line. A user's mistake is one line on standard error, never a traceback."""
    _show_warnings()
    try:
        outcome = get_command(app).main(arguments, prog_name="pfedes", standalone_mode=False)
    except PfedesError as error:
        return _complain(str(error))
    except Interrupted as stop:
        return _complain(str(stop), 130)
    except Exception as error:
        # The usage errors of the command-line parser, whose class has moved between releases.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _complain(error.format_message() or "see 'pfedes --help'")
        raise
    return outcome if isinstance(outcome, int) else 0


def _show_warnings() -> None:
    """What the library warns of reaches the user as one line each."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("pfedes: warning: %(message)s"))
    # A failed client is reported by the display; its traceback belongs into run.log.
    handler.addFilter(lambda record: record.exc_info is None)
    logging.getLogger("pfedes").handlers = [handler]


def _complain(message: str, code: int = 2) -> int:
    print("pfedes:", " ".join(message.split()), file=sys.stderr)
    return code
