"""How a federation stands, from its directory and, if it answers, from its server."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pfedes.config import configure
from pfedes.errors import StoreError
from pfedes.fleet.flare.fleet import begun, is_finished
from pfedes.fleet.flare.layout import Layout
from pfedes.fleet.flare.sessions import open_session

ANSWERING = 5.0  # seconds for the server


@dataclass(frozen=True)
class Person:
    """One participant, as the coordinator sees it."""

    name: str
    connected: bool | None  # None: the server does not answer
    last_contact: str | None
    version: int
    accuracy: float | None


@dataclass(frozen=True)
class Status:
    """A federation at one moment."""

    server: bool
    round: int
    rounds: int
    finished: bool
    people: list[Person]

    @property
    def progress(self) -> str:
        done = f"{self.round} of {self.rounds}"
        if self.finished:
            return f"{done}, finished"
        return done if self.server else f"{done}; the server does not answer"

    def tree(self) -> dict[str, Any]:
        return asdict(self)


def status_of(layout: Layout) -> Status:
    if not layout.config.exists():
        raise StoreError(f"{layout.directory} holds no federation: see 'pfedes serve'")
    config = configure(layout.config)
    contacts = _contacts(layout)
    run = begun(layout)
    manifest = run.manifest if run is not None else None
    people = []
    for name in sorted(config.federation.participants):
        standing = manifest.clients.get(name) if manifest is not None else None
        people.append(
            Person(
                name,
                None if contacts is None else name in contacts,
                (contacts or {}).get(name),
                standing.version if standing is not None else 0,
                standing.scores.accuracy if standing is not None else None,
            )
        )
    round = manifest.round if manifest is not None else 0
    finished = run is not None and is_finished(run, config)
    return Status(contacts is not None, round, config.train.rounds, finished, people)


def _contacts(layout: Layout) -> dict[str, str] | None:
    """When each connected site was last heard of; None if the server does not answer."""
    try:
        session = open_session(layout, ANSWERING)
        try:
            found = session.get_connected_client_list()
        finally:
            session.close()
    except Exception:  # FLARE raises whatever when nobody is there
        return None
    return {client.name: _time(client.last_connect_time) for client in found}


def _time(seconds: Any) -> str:
    try:
        return datetime.fromtimestamp(float(seconds)).isoformat(" ", "seconds")
    except (TypeError, ValueError):
        return str(seconds)
