"""The status of a federation, from its directory and, if it answers, from its server."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from pfedes.config import Config, stored_config
from pfedes.deploy.certificates import certificates_of, endings
from pfedes.deploy.coordinator.fleet import begun, is_finished
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.session import open_session
from pfedes.deploy.coordinator.strikes import Strikes
from pfedes.deploy.revocation import read_revocations
from pfedes.errors import StoreError
from pfedes.formatting import counted, plain
from pfedes.results.classwise import one_class_words

ANSWERING = 5.0  # seconds for the server


@dataclass(frozen=True)
class Person:
    """One participant, as the coordinator sees it."""

    name: str
    connected: bool | None  # None: the server does not answer
    last_contact: str | None
    version: int
    accuracy: float | None
    certificate: str | None = None  # the day on which it ends
    revoked: bool = False
    strikes: int = 0
    paused_until: int | None = None  # the round from which on it is asked again
    refused: str | None = None  # why it does not take part in the present job
    one_class: str = ""  # that its model predicts one class only, where participants tell that

    @property
    def note(self) -> str:
        """A remark for the coordinator."""
        notes = [f"does not take part: {self.refused}"] if self.refused else []
        if self.strikes:
            pause = f", not asked before round {self.paused_until}" if self.paused_until else ""
            notes.append(f"{counted(self.strikes, 'strike')}{pause}")
        notes += filter(None, [self.one_class])
        return plain("; ".join(notes))


@dataclass(frozen=True)
class Status:
    """A federation at one moment."""

    server: bool
    round: int
    rounds: int
    finished: bool
    people: list[Person]
    warnings: list[str] = field(default_factory=list)

    @property
    def progress(self) -> str:
        done = f"{self.round} of {self.rounds}"
        if self.finished:
            return f"{done}, finished"
        return done if self.server else f"{done}; the server does not answer"

    def tree(self) -> dict[str, Any]:
        return asdict(self)


def status_of(layout: Layout) -> Status:
    """Reads the state of a federation from its directory and, while it is served, from its server.

    Raises StoreError if the directory holds no federation.
    """
    if not layout.config.exists():
        raise StoreError(f"{layout.directory} holds no federation: see 'pfedes serve'")
    config = stored_config(layout.config)  # the directory may be anybody's
    contacts = _contacts(layout, config) if layout.is_served() else None
    run = begun(layout)
    manifest = run.manifest if run is not None else None
    revoked = read_revocations(layout.revoked).names
    known = manifest.clients if manifest is not None else {}
    scores = manifest.scores if manifest is not None else {}
    ends = certificates_of(layout, config.federation.participants)
    round = manifest.round if manifest is not None else 0
    strikes = Strikes(layout.strikes)
    accounts, paused, refused = strikes.accounts(), strikes.paused(round + 1), layout.refused()
    people = []
    for name in sorted({*config.federation.participants, *(revoked & known.keys())}):
        standing = manifest.clients.get(name) if manifest is not None else None
        people.append(
            Person(
                name,
                None if contacts is None else name in contacts,
                (contacts or {}).get(name),
                standing.version if standing is not None else 0,
                scores[name].accuracy if name in scores else None,
                ends[name].date().isoformat() if name in ends else None,
                name in revoked,
                accounts[name].count if name in accounts else 0,
                accounts[name].until if name in paused else None,
                refused.get(name),
                one_class_words(scores[name].test, config.federation.classes)
                if name in scores
                else "",
            )
        )
    finished = run is not None and is_finished(run, config)
    warnings = endings(layout, config.federation.participants)
    return Status(contacts is not None, round, config.train.rounds, finished, people, warnings)


def _contacts(layout: Layout, config: Config) -> dict[str, str] | None:
    """When each connected site last answered; None if the server does not answer."""
    try:
        session = open_session(layout, config, ANSWERING)
        try:
            found = session.get_connected_client_list()
        finally:
            session.close()
    except Exception:  # FLARE raises anything if there is no server
        return None
    return {client.name: _time(client.last_connect_time) for client in found}


def _time(seconds: Any) -> str:
    try:
        return datetime.fromtimestamp(float(seconds)).isoformat(" ", "seconds")
    except (TypeError, ValueError):
        return str(seconds)
