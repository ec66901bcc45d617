"""The participant: from a kit and a participant.toml to a model that was trained with others."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pfedes.config.participant import Participant
from pfedes.deploy.certificates import Reminders, ending, parse_certificate
from pfedes.deploy.flare_config import write_site
from pfedes.deploy.kit import Kit, read_kit
from pfedes.deploy.participant.state import JOIN_LOCK, ParticipantRecord, ParticipantState
from pfedes.deploy.process import Engine
from pfedes.deploy.sizes import size_limits
from pfedes.errors import ConfigError, StoreError
from pfedes.files import read
from pfedes.store.lock import alone
from pfedes.store.log import logging_into, noting_a_stop

log = logging.getLogger(__name__)

LOOK = 0.5  # seconds between two looks

Say = Callable[[str], None]


class Joining:
    """Keeps the site up, and says what happens."""

    def __init__(self, kit: Path, participant: Participant, say: Say) -> None:
        self.kit = read_kit(kit)
        self.participant = _fitting(participant, self.kit)
        self.seat = ParticipantState(Path(participant.state))
        self.say = say
        self.workspace = self.seat.directory / "site"
        output = self.seat.directory / "site.log"
        self.engine = Engine("client", self.workspace, participant.name, output)
        self.engine.limits = size_limits(self.kit.terms.federation.max_message)

    def run(self, *, leave: bool) -> None:
        """Until stopped; with `leave`, until the federation is finished."""
        self.seat.make()
        taken = f"another 'pfedes join' is at work in {self.seat.directory}"
        for line in self._endings(refuse=True):
            log.warning("%s", line)
        with alone(self.seat.directory / JOIN_LOCK, taken):
            write_site(self.workspace, self.kit, self._key(), self.participant)
            self.say(f"everything that leaves is listed in {self.seat.sent_file}")
            with (
                logging_into(self.seat.directory / "join.log"),
                noting_a_stop("'pfedes join' continues"),
            ):
                self._stay(leave=leave)

    def _stay(self, *, leave: bool) -> None:
        before = at_first = self.seat.record()  # perhaps of a federation that goes on
        try:
            reminders = Reminders(self._endings)
            reminders.due()  # has just been said
            while True:
                for line in reminders.due():
                    log.warning("%s", line)
                if self.engine.keep_alive():
                    self.say(f"{self.participant.name} looks for the coordinator")
                record = self.seat.record()
                if record is not None and record != before:
                    self._tell(before, record)
                    before = record
                if leave and record is not None and record.finished and record != at_first:
                    return
                time.sleep(LOOK)
        finally:
            self.engine.stop()

    def _endings(self, *, refuse: bool = False) -> list[str]:
        """What of the kit ends soon; with `refuse`, what has ended is an error."""
        lines = []
        for whose, data in (("your certificate", self.kit.certificate),
                            ("the authority's certificate", self.kit.authority)):  # fmt: skip
            ends = parse_certificate(data).ends
            remedy = f"ask the coordinator for a new kit, by 'pfedes renew {self.kit.name}'"
            line = ending(whose, ends, remedy)
            if line is not None and refuse and ends <= datetime.now(UTC):
                raise StoreError(line)
            lines += [line] if line is not None else []
        return lines

    def _key(self) -> bytes:
        """The kit's key, or the one that was made here and has never been elsewhere."""
        own = key_of(self.participant)
        if self.kit.key is not None:
            return self.kit.key
        if not own.exists():
            raise StoreError(f"the kit has no key, and there is none in {own.parent}")
        key = read(own)
        self.kit.check_key(own, key)
        return key

    def _tell(self, before: ParticipantRecord | None, record: ParticipantRecord) -> None:
        if before is None or record.run != before.run:
            before = ParticipantRecord()
        if record.accepted != before.accepted and record.scores is not None:
            accuracy = f"{100 * record.scores.accuracy:.2f} %"
            self.say(f"round {record.accepted} was accepted: {accuracy} on its own test samples")
        if record.finished and not before.finished:
            self.say(f"the federation is finished after round {record.round}")


def key_of(participant: Participant) -> Path:
    """Where a participant keeps a key that it made itself."""
    if not participant.state:
        raise ConfigError(f"{participant.name}: state = '...' must name a directory for its models")
    return Path(participant.state) / "site.key"


def _fitting(participant: Participant, kit: Kit) -> Participant:
    key_of(participant)  # says so if there is no place for it
    if participant.name != kit.name:
        raise ConfigError(f"the kit is for {kit.name}, not for {participant.name}")
    return participant
