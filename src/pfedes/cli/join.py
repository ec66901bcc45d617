"""`pfedes join`: taking part in a federation from one's own machine."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._federation import said, show_seat
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.cli.check import show_check
from pfedes.config.participant import read_participant
from pfedes.deploy.hardening.version import check_version
from pfedes.deploy.participant.join import Joining


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
    show_joining(kit, participant, leave=leave)


def show_joining(kit: Path, file: Path, *, leave: bool) -> None:
    check_version()
    joining = Joining(kit.absolute(), read_participant(file), said)
    show_check(file, joining.kit.terms)
    try:
        with interruptible():
            joining.run(leave=leave)
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; 'pfedes join {kit} {file}' goes on") from None
    show_seat(joining.seat)
