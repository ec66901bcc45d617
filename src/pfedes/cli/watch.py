"""`pfedes watch`: a live page over runs and federations."""

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from pfedes.errors import ConfigError


def watch(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...",
            help="Run directories, directories with runs in them, or directories of federations; "
            "by default 'runs'.",
            show_default=False,
        ),
    ] = None,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for a free one.")
    ] = 0,
) -> None:
    """Show runs, comparisons and federations on a live page.

    The page is served on this machine only, at an address with a secret token in it. Nothing is
    written to the directories. Ctrl-C ends it; the runs continue.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise ConfigError("pfedes watch needs the extra 'watch': pip install 'pfedes[watch]'")
    from pfedes.watch.server import Server

    server = Server(directories or [Path("runs")], port)
    with suppress(KeyboardInterrupt):  # the ordinary end
        server.run(lambda address: print(f"{address}  (Ctrl-C ends the page)", flush=True))
