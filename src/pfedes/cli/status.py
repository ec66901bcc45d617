"""`pfedes status`: the status of a federation or of a participant."""

import json as json_module
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from pfedes.cli._display import facts, output
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.status import status_of
from pfedes.deploy.hardening.version import check_version
from pfedes.deploy.participant.standing import ParticipantRecord
from pfedes.deploy.participant.state import ParticipantState
from pfedes.formatting import counted, percent
from pfedes.results.classwise import rows_of


def status(
    federation: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="Directory of the federation, or 'state' directory of a participant.",
        ),
    ] = Path("federation"),
    *,
    json: Annotated[bool, typer.Option("--json", help="Print only the status, as JSON.")] = False,
) -> None:
    """Show who is connected, the round, and all accuracies.

    For a participant's 'state' directory: its round, its accuracy, and the file that lists
    everything that it sent.
    """
    show_status(federation, json=json)


def show_status(directory: Path, *, json: bool) -> None:
    seat = ParticipantState(directory.absolute())
    if seat.is_joined:
        _show_participant(seat, json=json)
        return
    check_version()
    found = status_of(Layout(directory.absolute()))
    if json:
        print(json_module.dumps(found.tree(), indent=2))
        return
    output().print(facts({"federation": str(directory), "round": found.progress}))
    columns = ("participant", "connected", "last contact", "accuracy", "note")
    table = Table(*columns, box=None, pad_edge=False)
    for person in found.people:
        accuracy = "-" if person.accuracy is None else percent(person.accuracy)
        connected = {True: "yes", False: "no", None: "?"}[person.connected]
        connected = "revoked" if person.revoked else connected
        contact = person.last_contact or "-"
        table.add_row(person.name, connected, contact, accuracy, escape(person.note))
    output().print(table)
    for warning in found.warnings:
        output().print(f"warning: {warning}", soft_wrap=True)


def _show_participant(seat: ParticipantState, *, json: bool) -> None:
    """How a participant stands, from its own `state` directory."""
    record, lines = seat.record() or ParticipantRecord(), seat.sent()
    numbers = sum(line["floats"] for line in lines)
    accuracy = None if record.scores is None else record.scores.accuracy
    if json:
        tree = {
            "run": record.run,
            "round": record.round,
            "accepted": record.accepted,
            "finished": record.finished,
            "accuracy": accuracy,
            "sent": {"file": str(seat.sent_file), "messages": len(lines), "numbers": numbers},
        }
        print(json_module.dumps(tree, indent=2))
        return
    rows = {
        "participant": str(seat.directory),
        "round": f"{record.round}{', finished' if record.finished else ''}",
        "accepted": f"version {record.accepted}" if record.accepted else "none yet",
        "accuracy": "-" if accuracy is None else f"{percent(accuracy)} of its own test samples",
        **(rows_of(record.scores, seat.config.federation.classes) if record.scores else {}),
        "sent": f"{counted(len(lines), 'message')} with {numbers:,} numbers",
        "listed in": str(seat.sent_file),
    }
    output().print(facts(rows))
