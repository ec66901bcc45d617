"""A coordinator's federation as the page shows it, from what `pfedes status` knows."""

from dataclasses import dataclass
from pathlib import Path

from pfedes.errors import PfedesError
from pfedes.formatting import percent
from pfedes.watch.bounded import MOST_CLIENTS, number, text
from pfedes.watch.view import Cell

COLUMNS = ("participant", "connected", "last contact", "strikes", "accuracy", "version", "note")


@dataclass(frozen=True)
class FederationView:
    """The participants of a federation, and the state of each."""

    people: tuple[tuple[Cell, ...], ...] = ()
    server: str = ""
    warnings: tuple[str, ...] = ()


def is_federation(directory: Path) -> bool:
    """Whether a coordinator's files are there."""
    return (directory / "federation.toml").is_file()


def federation_view(directory: Path) -> FederationView:
    """Asks the federation's directory and, if it answers, its server: that may take seconds."""
    try:
        # FLARE is an extra, and takes a second to load: only for those who watch a federation.
        from pfedes.deploy.coordinator.layout import Layout
        from pfedes.deploy.coordinator.status import status_of
    except ModuleNotFoundError:
        reason = "to see who is connected, install the extra 'flare': pip install 'pfedes[flare]'"
        return FederationView(warnings=(reason,))
    try:
        status = status_of(Layout(directory.absolute()))
    except PfedesError as error:
        return FederationView(warnings=(text(error),))
    people: list[tuple[Cell, ...]] = []
    for person in status.people[:MOST_CLIENTS]:
        connected = {True: "yes", False: "no", None: "?"}[person.connected]
        connected = "revoked" if person.revoked else connected
        contact = text(person.last_contact or "-")
        accuracy = None if person.accuracy is None else number(person.accuracy)
        people.append(
            (
                (text(person.name), text(person.name)),
                (connected, connected),
                (contact, person.last_contact and contact),
                (str(person.strikes), person.strikes),
                (percent(accuracy), accuracy),
                (str(person.version or "-"), person.version or None),
                (text(person.note), text(person.note)),
            )
        )
    server = "answers" if status.server else "does not answer"
    return FederationView(tuple(people), server, tuple(map(text, status.warnings)))


def awaited_in(directory: Path) -> list[str]:
    """Names of the participants that have not answered yet in the current round."""
    try:
        from pfedes.deploy.coordinator.layout import Layout

        return Layout(directory).awaited()[1]
    except (ModuleNotFoundError, PfedesError):
        return []
