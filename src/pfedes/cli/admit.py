"""`pfedes admit`: letting somebody in who was not there at the beginning."""

from pathlib import Path
from typing import Annotated

import typer


def admit(
    name: Annotated[str, typer.Argument(help="Who.", show_default=False)],
    *,
    federation: Annotated[
        Path, typer.Option("--federation", help="The federation's directory.")
    ] = Path("federation"),
    request: Annotated[
        Path | None,
        typer.Option(
            "--request",
            metavar="FILE.csr",
            help="What 'pfedes request' made: the kit is then for a key that only they have.",
        ),
    ] = None,
) -> None:
    """Make a kit for somebody new, also while the federation runs.

    Who joins with it takes part from the next round on.
    """
    from pfedes.cli.coordinating import show_admission

    show_admission(name, federation, request)
