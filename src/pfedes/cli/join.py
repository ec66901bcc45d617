"""`pfedes join`: taking part in a federation from one's own machine."""

from pathlib import Path
from typing import Annotated

import typer


def join(
    kit: Annotated[
        Path,
        typer.Argument(metavar="KIT", help="What the coordinator gave you.", show_default=False),
    ],
    participant: Annotated[
        Path, typer.Argument(metavar="PARTICIPANT.toml", help="Who you are.", show_default=False)
    ],
    *,
    leave: Annotated[
        bool, typer.Option("--leave", help="Leave when the federation is finished.")
    ] = False,
) -> None:
    """Take part with your own model and data, until stopped.

    What may leave is decided by your file, and enforced by it twice. Model, data and an account of
    everything that was sent stay in its 'state' directory.
    """
    from pfedes.cli.coordinating import show_joining

    show_joining(kit, participant, leave=leave)
