"""The coordinator: from a configuration to a finished run, through whatever happens meanwhile."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nvflare.fuel.flare_api.flare_api import Session

from pfedes.config import Config, configure
from pfedes.errors import PfedesError, StoreError
from pfedes.federation import refuse_if_taken
from pfedes.files import read, remove, write_atomically, writing
from pfedes.fleet.flare.engine import Engine
from pfedes.fleet.flare.fleet import begun, is_finished, untold
from pfedes.fleet.flare.gathering import gather
from pfedes.fleet.flare.jobs import write_job
from pfedes.fleet.flare.keys import read_request
from pfedes.fleet.flare.kits import provide, provision
from pfedes.fleet.flare.layout import Layout, Presence
from pfedes.fleet.flare.sessions import connected, open_session
from pfedes.fleet.flare.terms import check_site, check_terms, going_on, with_participants
from pfedes.run import Run, open_run
from pfedes.runlock import in_turn
from pfedes.simulation import Simulation

log = logging.getLogger(__name__)

LOOK = 0.5  # seconds between two looks
LEAVING = 30.0  # seconds beyond its timeout in which somebody may still hear the end
CONNECTING = 30.0  # seconds for the server to answer

Say = Callable[[str], None]


def prepare(layout: Layout, config: Config) -> list[str]:
    """The federation's directory, with kits for all who are named; the names of new ones."""
    check_terms(config)
    Simulation(config)  # whatever is wrong with the terms is said before anything is made
    if begun(layout) is None:
        config.check_uploads(config.federation.quorum or len(config.federation.participants))
    with writing(layout.directory):
        if not layout.is_begun:
            refuse_if_taken(layout.directory)
            layout.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with in_turn(layout.changing):
        if layout.config.exists():
            config = going_on(layout, config)
        write_atomically(layout.config, config.to_toml().encode())
        return provision(layout, config)


def admit(layout: Layout, name: str, request: Path | None = None) -> Path:
    """A kit for a newcomer, who takes part from the next round on after joining with it.

    With a request it is one for a key that never left the participant's machine.
    """
    if not layout.config.exists():
        raise StoreError(f"{layout.directory} holds no federation: see 'pfedes serve'")
    asked = read_request(name, request) if request is not None else None
    with in_turn(layout.changing):
        config = configure(layout.config)
        check_site(name, config)
        names = dict.fromkeys((*config.federation.participants, name))
        config = with_participants(config, tuple(names))
        kit = provide(layout, config, name, asked)
        write_atomically(layout.config, config.to_toml().encode())
        return kit


class Serving:
    """Keeps the server up and a job running until all rounds are done and everybody knows."""

    def __init__(self, layout: Layout, say: Say) -> None:
        self.layout = layout
        self.say = say
        self.engine = Engine("server", layout.server, "server", layout.directory / "server.log")
        self._session: Session | None = None
        self._job = ""
        self._presence = Presence({}, {})
        self._waiting_for = ""
        self._waiting_since = 0.0
        self._finished_at = 0.0

    def run(self) -> Run:
        with ExitStack() as stack:
            stack.enter_context(self.layout.served())
            remove(self.layout.trouble)  # of a job that nobody saw end
            stack.callback(self.engine.stop)
            stack.callback(self._disconnect)
            while True:
                if self.engine.keep_alive():
                    # FLARE resumes nothing: the next job does, from our files.
                    self._disconnect()
                    self._job, self._waiting_since = "", time.monotonic()
                if self._look():
                    return open_run(self.layout.run)
                time.sleep(LOOK)

    def _look(self) -> bool:
        """One look at everything; whether all is done."""
        self._raise_trouble()
        if self._is_done():
            return True
        try:
            session = self._connect()
            self._meet(connected(session))
            if self._job and self._is_over(session.get_job_status(self._job)):
                self.say("the job ended")
                self._job, self._waiting_since = "", time.monotonic()
            if not self._job:
                self._submit(session)
        except PfedesError:  # ours: a place that cannot be written, a file that is damaged
            raise
        except Exception as error:  # FLARE raises whatever: the server is busy, gone, or new
            log.info("the server does not answer: %s", error)
            self._disconnect()
        return False

    def _is_done(self) -> bool:
        run, config = begun(self.layout), configure(self.layout.config)
        if run is None or not is_finished(run, config):
            return False
        self._finished_at = self._finished_at or time.monotonic()
        left = untold(self.layout, run)
        if left and time.monotonic() > self._finished_at + config.federation.timeout + LEAVING:
            self.say(f"{', '.join(sorted(left))} will hear the end when this command runs again")
            return True
        return not left

    def _meet(self, connected: Mapping[str, str]) -> None:
        before = self._presence.connected
        # A kit still opens the door to somebody who is no participant any more.
        names = configure(self.layout.config).federation.participants
        there = {name: connected[name] for name in sorted(names) if name in connected}
        for name, token in there.items():
            if before.get(name) != token:
                self.say(f"{name} is connected{' again' if name in before else ''}")
        for name in sorted(before.keys() - there.keys()):
            self.say(f"{name} is gone")
        self._note(Presence(there, self._presence.in_job))

    def _note(self, presence: Presence) -> None:
        if presence != self._presence:
            self._presence = presence
            self.layout.write_presence(presence)

    def _submit(self, session: Session) -> None:
        config = configure(self.layout.config)  # somebody may have been admitted meanwhile
        connected, waited = self._presence.connected, time.monotonic() - self._waiting_since
        found = gather(self.layout, config, connected, waited)
        if not found.is_ready:
            self._wait_for(f"waiting for {found.needed} of {', '.join(found.missing)}")
            return
        self._note(Presence(connected, {name: connected[name] for name in found.sites}))
        self._job = session.submit_job(str(write_job(self.layout, found.sites)))
        self.say(f"the job was submitted for {', '.join(found.sites)}")

    def _wait_for(self, text: str) -> None:
        if text != self._waiting_for:
            self._waiting_for = text
            self.say(text)

    def _connect(self) -> Session:
        if self._session is None:
            self._session = open_session(self.layout, CONNECTING)
        return self._session

    def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except Exception as error:
                log.info("the session was not closed: %s", error)

    @staticmethod
    def _is_over(status: Any) -> bool:
        over = ("FINISHED", "FAILED_TO_RUN", "ABANDONED")
        return isinstance(status, str) and status.startswith(over)

    def _raise_trouble(self) -> None:
        if self.layout.trouble.exists():
            text = read(self.layout.trouble).decode().strip()
            remove(self.layout.trouble)
            raise StoreError(text)
