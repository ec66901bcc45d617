"""The coordinator: from a configuration to a finished run, with restarts of server and jobs."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from nvflare.fuel.flare_api.flare_api import Session

from pfedes.config import Config, configure
from pfedes.deploy.certificates import Reminders, endings
from pfedes.deploy.coordinator.announce import Announcer
from pfedes.deploy.coordinator.fleet import begun, is_finished, untold
from pfedes.deploy.coordinator.job import write_job
from pfedes.deploy.coordinator.layout import Layout, Presence
from pfedes.deploy.coordinator.provisioning import provide, provision
from pfedes.deploy.coordinator.quorum import gather
from pfedes.deploy.coordinator.session import connected, open_session
from pfedes.deploy.coordinator.strikes import Strikes
from pfedes.deploy.coordinator.terms import check_terms, going_on, with_norm, with_participants
from pfedes.deploy.engine import Engine
from pfedes.deploy.flare_config import write_server
from pfedes.deploy.names import check_site
from pfedes.deploy.participant.keys import read_request
from pfedes.deploy.revocation import read_revocations
from pfedes.deploy.sizes import size_limits
from pfedes.errors import FailedRunError, PfedesError, StoreError, kind_and_text
from pfedes.federation.directory import refuse_if_taken
from pfedes.files import make_private_directory, read, remove, write_atomically, writing
from pfedes.imports import kind_text_and_place
from pfedes.population.simulation import Simulation
from pfedes.results.run import Run, open_run
from pfedes.store.lock import in_turn
from pfedes.store.log import logging_into, noting_a_stop

log = logging.getLogger(__name__)

LOOK = 0.5  # seconds between two looks
LEAVING = 30.0  # seconds beyond the timeout in which a participant may still receive the result
CONNECTING = 30.0  # seconds for the server to answer
OUTCOMES = {"NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "30"}  # s for sites to say how a job ended
MANY = 20  # looks in a row without an answer, after which it is said

Say = Callable[[str], None]


def prepare(layout: Layout, config: Config) -> list[str]:
    """Makes the federation's directory and kits for all participants; returns new names."""
    config = _without_revoked(layout, config)
    check_terms(config)
    Simulation(config)  # refuses wrong terms before anything is made
    if begun(layout) is None:
        config.check_uploads(config.federation.quorum or len(config.federation.participants))
    with writing(layout.directory):
        if not layout.is_begun:
            refuse_if_taken(layout.directory)
            make_private_directory(layout.directory)
    with in_turn(layout.changing):
        config = going_on(layout, config) if layout.config.exists() else with_norm(config)
        write_atomically(layout.config, config.to_toml().encode())
        return provision(layout, config)


def _without_revoked(layout: Layout, config: Config) -> Config:
    """Leaves out expelled participants that the configuration still names."""
    revoked = read_revocations(layout.revoked).names
    names = config.federation.participants
    for name in sorted(revoked & set(names)):
        log.warning("%s was revoked and is left out: see 'pfedes admit %s --again'", name, name)
    return with_participants(config, tuple(name for name in names if name not in revoked))


def admit(layout: Layout, name: str, request: Path | None = None, *, again: bool = False) -> Path:
    """A kit for a newcomer, who takes part from the next round on after joining with it.

    With a request it is one for a key that never left the participant's machine. One who was
    revoked gets a new key, and only if that is asked for by `again`.
    """
    if not layout.config.exists():
        raise StoreError(f"{layout.directory} holds no federation: see 'pfedes serve'")
    asked = read_request(name, request) if request is not None else None
    with in_turn(layout.changing):
        config = configure(layout.config)
        check_site(name, config.federation.host)
        names = dict.fromkeys((*config.federation.participants, name))
        config = with_participants(config, tuple(names))
        revoked = read_revocations(layout.revoked)
        revoked.check_admission(name, asked.key if asked is not None else None, again=again)
        if name in revoked.names:
            revoked.wait_for_later_certificates(name)
        kit = provide(layout, config, name, asked)
        if name in revoked.names:  # not before the new kit is there
            revoked.admit_again(name).write(layout.revoked)
            Strikes(layout.strikes).forget(name)  # being expelled in a round is nothing it did
        write_atomically(layout.config, config.to_toml().encode())
        return kit


class NoAnswerError(Exception):
    """FLARE's server did not answer; it may the next time."""


@contextmanager
def _asking() -> Iterator[None]:
    """Turns whatever FLARE raises when its server is busy, gone or new into one error."""
    try:
        yield
    except PfedesError:  # ours: a place that cannot be written, a file that is damaged
        raise
    except Exception as error:
        raise NoAnswerError(f"the server does not answer: {kind_and_text(error)}") from error


@contextmanager
def _in_one_line() -> Iterator[None]:
    """An error in our own code would come again at every look: it ends the command."""
    try:
        yield
    except PfedesError:
        raise
    except Exception as error:
        log.exception("serving failed")
        raise FailedRunError(
            f"serving failed: {kind_text_and_place(error)}; committed rounds are safe"
        ) from error


class Serving:
    """Keeps the server up and a job running until all rounds are done and everybody knows."""

    def __init__(self, layout: Layout, say: Say, look: Callable[[], None] = lambda: None) -> None:
        """`look` is called again and again; what it raises ends the command."""
        self.layout = layout
        self.say = say
        self._look_besides = look
        self.engine = Engine("server", layout.server, "server", layout.directory / "server.log")
        self._reminders = Reminders(self._endings)
        self._session: Session | None = None
        self._job = ""
        self._presence = Presence({}, {})
        self._strikes = Strikes(layout.strikes)
        self._refused: dict[str, str] = {}
        self._unanswered = 0  # looks in a row
        self._waiting_for = ""
        self._waiting_since = 0.0
        self._finished_at = 0.0
        self._seen: set[str] = set()  # all that were connected since this process began
        self._last_there = 0.0  # when a participant that lacks the result was last connected
        self._watch = Announcer(layout, say)

    def run(self) -> Run:
        with ExitStack() as stack:
            stack.enter_context(self.layout.served())
            stack.enter_context(logging_into(self.layout.directory / "serve.log"))
            stack.enter_context(noting_a_stop("'pfedes serve'"))
            write_server(self.layout.server, configure(self.layout.config))
            remove(self.layout.trouble)  # left by a job whose end was not seen
            largest = configure(self.layout.config).federation.max_message
            self.engine.limits = {**size_limits(largest), **OUTCOMES}
            stack.callback(self.engine.stop)
            stack.callback(self._disconnect)
            stack.enter_context(_in_one_line())
            while True:
                if self.engine.keep_alive():
                    # FLARE resumes nothing: the next job does, from our files.
                    self._disconnect()
                    self._job, self._waiting_since = "", time.monotonic()
                if self._look():
                    return open_run(self.layout.run)
                self._look_besides()
                time.sleep(LOOK)

    def _look(self) -> bool:
        """One look at everything; whether all is done."""
        for line in self._reminders.due():
            log.warning("%s", line)
        self._raise_trouble()
        self._watch.look()
        if self._is_done():
            return True
        try:
            self._ask_server()
        except NoAnswerError as error:  # it is busy, gone, or new: that passes
            log.info("%s", error)
            self._disconnect()
            self._unanswered += 1
            if self._unanswered == MANY:
                log.warning("%s; asking again every %g s", error, LOOK)
        else:
            self._unanswered = 0
        return False

    def _ask_server(self) -> None:
        """Looks at the connections and the job, and submits the next job when it is time."""
        with _asking():
            session = self._connect()
            there = connected(session)
        self._meet(there)
        self._tell_refusals()
        with _asking():
            over = bool(self._job) and self._is_over(session.get_job_status(self._job))
        if over:
            self._strike_enders()
            self.say("the job ended")
            self._job, self._waiting_since = "", time.monotonic()
        if not self._job:
            self._submit(session)

    def _endings(self) -> list[str]:
        return endings(self.layout, configure(self.layout.config).federation.participants)

    def _is_done(self) -> bool:
        run, config = begun(self.layout), configure(self.layout.config)
        if run is None or not is_finished(run, config):
            return False
        self._finished_at = self._finished_at or time.monotonic()
        left = untold(self.layout, run)
        if not left:
            return True
        names, now = ", ".join(sorted(left)), time.monotonic()
        if self._last_there == 0.0 or left - self._seen or left & self._presence.connected.keys():
            self._last_there = now  # others may be about to connect
            most = config.federation.timeout + LEAVING
            self._wait_for(f"all rounds are done; waiting at most {most:g} s to tell {names}")
        else:
            self._wait_for(f"{names} left before receiving the final result; waiting {LEAVING:g} s")
        within_time = now <= self._finished_at + config.federation.timeout + LEAVING
        if within_time and now <= self._last_there + LEAVING:
            return False
        have = "has" if len(left) == 1 else "have"
        self.say(
            f"{names} {have} not received the final result; run 'pfedes serve' again to deliver it"
        )
        return True

    def _meet(self, connected: Mapping[str, str]) -> None:
        before = self._presence.connected
        # The kit of a former participant still lets it connect.
        names = configure(self.layout.config).federation.participants
        there = {name: connected[name] for name in sorted(names) if name in connected}
        for name, token in there.items():
            if before.get(name) != token:
                self.say(f"{name} is connected{' again' if name in before else ''}")
        for name in sorted(before.keys() - there.keys()):
            told = self._knows_the_end(name)
            self.say(f"{name} has left with the final result" if told else f"{name} is gone")
        self._seen |= there.keys()
        self._strike_returned(there)
        self._note(Presence(there, self._presence.in_job))

    def _knows_the_end(self, name: str) -> bool:
        run = begun(self.layout) if self._finished_at else None
        return run is not None and name not in untold(self.layout, run)

    def _strike_returned(self, there: Mapping[str, str]) -> None:
        """Gives a strike to a participant that left a job and came back, which ends the job."""
        in_job = self._presence.in_job if self._job else {}
        returned = {n: in_job[n] for n in in_job.keys() & there.keys() if there[n] != in_job[n]}
        for name, session in returned.items():
            self._strikes.give(name, "it left a job and came back", self._round(), session)

    def _strike_enders(self) -> None:
        """Gives a strike to participants whose part of a job failed, which ended the job."""
        job, names = self.layout.ended()
        for name in names if job == self._job else ():
            self._strikes.give(name, "its part of a job failed, which ended the job", self._round())

    def _round(self) -> int:
        """The one to be done."""
        run = begun(self.layout)
        return run.manifest.round + 1 if run is not None else 1

    def _tell_refusals(self) -> None:
        refused = self.layout.refused()
        for name, reason in refused.items():
            if self._refused.get(name) != reason:
                self.say(f"{name} does not take part: {reason}")
        self._refused = refused

    def _note(self, presence: Presence) -> None:
        if presence != self._presence:
            self._presence = presence
            self.layout.write_presence(presence)

    def _submit(self, session: Session) -> None:
        config = configure(self.layout.config)  # participants may have been admitted meanwhile
        connected, waited = self._presence.connected, time.monotonic() - self._waiting_since
        found = gather(self.layout, config, connected, waited)
        if not found.is_ready:
            if not self._finished_at:  # else it was said that they are waited for, and how long
                self._wait_for(f"waiting for {found.needed} of {', '.join(found.missing)}")
            return
        if found.pardoned:
            self._strikes.pardon(found.pardoned, "without it there are too few for a round")
        self._note(Presence(connected, {name: connected[name] for name in found.sites}))
        job = str(write_job(self.layout, found.sites))
        with _asking():
            self._job = session.submit_job(job)
        self.say(f"the job was submitted for {', '.join(found.sites)}")

    def _wait_for(self, text: str) -> None:
        if text != self._waiting_for:
            self._waiting_for = text
            self.say(text)

    def _connect(self) -> Session:
        if self._session is None:
            self._session = open_session(self.layout, configure(self.layout.config), CONNECTING)
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
