"""`pfedes request`: a key that never leaves the participant's machine."""

from pathlib import Path
from typing import Annotated

import typer


def request(
    participant: Annotated[
        Path, typer.Argument(metavar="PARTICIPANT.toml", help="Who you are.", show_default=False)
    ],
) -> None:
    """Make a private key, and a request that the coordinator signs with 'pfedes admit --request'.

    The key stays in the 'state' directory, where 'pfedes join' finds it. If one is there already,
    the request is made anew for it.
    """
    from pfedes.cli.coordinating import show_request

    show_request(participant)
