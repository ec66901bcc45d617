"""`pfedes join`: taking part in a federation from another machine."""

import os
from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._narration import said
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.deploy.participant.waiting import WAITING, Waiting


def join(
    kit: Annotated[
        Path,
        typer.Argument(
            metavar="KIT", help="Kit that the coordinator gave you.", show_default=False
        ),
    ],
    participant: Annotated[
        Path,
        typer.Argument(
            metavar="PARTICIPANT.toml", help="Your participant file.", show_default=False
        ),
    ],
    *,
    leave: Annotated[
        bool, typer.Option("--leave", help="Exit when the federation is finished.")
    ] = False,
) -> None:
    """Take part with your own model and data, until stopped.

    Your participant file decides what may leave; two checks on this machine enforce it. Your
    models and a record of everything that was sent stay in the 'state' directory.
    """
    try:
        if told := os.environ.pop(WAITING, ""):
            _wait(Waiting.model_validate_json(told), leave=leave)
        else:
            _prepare(kit, participant)
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; 'pfedes join {kit} {participant}' continues") from None


def _prepare(kit: Path, file: Path) -> None:
    # Imported here: the process that waits does without torch.
    from pfedes.cli.check import show_check
    from pfedes.config.participant import read_participant
    from pfedes.deploy.hardening.version import check_version
    from pfedes.deploy.participant.join import Joining

    check_version()
    joining = Joining(kit.absolute(), read_participant(file), said)
    show_check(file, joining.kit.terms)
    with interruptible():
        joining.run()


def _wait(waiting: Waiting, *, leave: bool) -> None:
    with interruptible():
        waiting.stay(said, leave=leave)
    # Imported when there is nothing to wait for any more.
    from pfedes.cli._federation import show_seat
    from pfedes.deploy.participant.state import ParticipantState

    show_seat(ParticipantState(waiting.directory))
