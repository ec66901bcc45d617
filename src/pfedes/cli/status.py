"""`pfedes status`: how a federation stands."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli.options import Json


def status(
    federation: Annotated[
        Path, typer.Argument(metavar="DIR", help="The federation's directory.")
    ] = Path("federation"),
    *,
    json: Json = False,
) -> None:
    """Show who is connected, the round, and everybody's accuracy."""
    from pfedes.cli.coordinating import show_status

    show_status(federation, json=json)
