"""`pfedes rehearse`: a whole federation on one machine."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli.options import Rounds


def rehearse(
    *,
    participants: Annotated[int, typer.Option(min=1, max=20, help="How many take part.")] = 3,
    rounds: Rounds = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A new directory; rehearsal if not given.", show_default=False),
    ] = None,
) -> None:
    """Go through a federation over loopback, with certificates, processes and private models.

    Every participant gets a directory with a model and data of its own, to be looked at and
    changed.
    """
    from pfedes.cli.coordinating import show_rehearsal

    show_rehearsal(participants, rounds, out or Path("rehearsal"))
