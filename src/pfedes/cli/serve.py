"""`pfedes serve`: coordinating a federation across machines."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli.options import Json, Quiet


def serve(
    federation: Annotated[
        Path,
        typer.Argument(
            metavar="FEDERATION.toml",
            help="A configuration with [federation] participants.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="The federation's directory.")] = Path("federation"),
    kits_only: Annotated[
        bool, typer.Option("--kits-only", help="Make the participants' kits, and leave.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make kits, start the server, wait for the participants, and run all rounds.

    Everything is below one directory. Started again, it goes on where it was.
    """
    from pfedes.cli.coordinating import show_serving

    show_serving(federation, out, kits_only=kits_only, quiet=quiet, json=json)
