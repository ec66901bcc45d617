"""`pfedes check`: trying a participant out, without any network."""

from pathlib import Path
from typing import Annotated

import typer


def check(
    participant: Annotated[
        Path, typer.Argument(metavar="PARTICIPANT.toml", help="Whom to try.", show_default=False)
    ],
    *,
    federation: Annotated[
        Path | None,
        typer.Option(help="The federation's configuration: its classes, channels and method."),
    ] = None,
) -> None:
    """Try a participant's model and data, and show exactly what would leave.

    Loads both, takes one step through extractor and model, and names every problem at once, each
    with its remedy. Nothing is sent, nothing is written.
    """
    from pfedes.cli.checking import show_check

    show_check(participant, federation)
