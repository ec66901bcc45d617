"""The loop of `pfedes join`: it keeps the site running for months, and prints what happens.

Nothing heavy is imported here: a participant that only waits must not take much memory.
"""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from pfedes.deploy.certificates import Reminders, ending
from pfedes.deploy.engine import Engine
from pfedes.deploy.participant.standing import ParticipantRecord, read_record
from pfedes.errors import StoreError
from pfedes.section import Section
from pfedes.store.log import logging_into, noting_a_stop

log = logging.getLogger(__name__)

LOOK = 0.5  # seconds between two looks
WAITING = "PFEDES_WAITING"  # the variable in which `Joining` hands over

Say = Callable[[str], None]


class Waiting(Section):
    """All that has to be known for that, once the site's workspace is written."""

    name: str
    directory: Path  # the participant's state
    limits: Mapping[str, str]  # additions to the environment of FLARE's process
    ends: Mapping[str, datetime]  # of the certificates that it works with

    @property
    def workspace(self) -> Path:
        return self.directory / "site"

    def stay(self, say: Say, *, leave: bool) -> None:
        """Until stopped; with `leave`, until the federation is finished."""
        with (
            logging_into(self.directory / "join.log"),
            noting_a_stop("'pfedes join'"),
        ):
            self._stay(say, leave=leave)

    def endings(self, *, refuse: bool = False) -> list[str]:
        """Warnings of certificates that expire soon; with `refuse`, expired ones are an error."""
        lines = []
        for whose, ends in self.ends.items():
            remedy = f"ask the coordinator for a new kit, by 'pfedes renew {self.name}'"
            line = ending(whose, ends, remedy)
            if line is not None and refuse and ends <= datetime.now(UTC):
                raise StoreError(line)
            lines += [line] if line is not None else []
        return lines

    def _stay(self, say: Say, *, leave: bool) -> None:
        engine = Engine("client", self.workspace, self.name, self.directory / "site.log")
        engine.limits = self.limits
        before = at_first = read_record(self.directory)  # perhaps of a federation that continues
        try:
            reminders = Reminders(self.endings)
            reminders.due()  # has just been said
            while True:
                for line in reminders.due():
                    log.warning("%s", line)
                if engine.keep_alive():
                    say(f"{self.name} is looking for the coordinator")
                record = read_record(self.directory)
                if record is not None and record != before:
                    _tell(say, before, record)
                    before = record
                if leave and record is not None and record.finished and record != at_first:
                    return
                time.sleep(LOOK)
        finally:
            engine.stop()


def _tell(say: Say, before: ParticipantRecord | None, record: ParticipantRecord) -> None:
    if before is None or record.run != before.run:
        before = ParticipantRecord()
    if record.accepted != before.accepted and record.scores is not None:
        accuracy = f"{100 * record.scores.accuracy:.2f} %"
        say(f"round {record.accepted} was accepted: {accuracy} on its own test samples")
    if record.finished and not before.finished:
        say(f"the federation is finished after round {record.round}")
