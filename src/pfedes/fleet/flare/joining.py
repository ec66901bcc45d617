"""The participant: from a kit and a participant.toml to a model that was trained with others."""

import time
from collections.abc import Callable
from pathlib import Path

from pfedes.config import Config, configure
from pfedes.errors import ConfigError, StoreError
from pfedes.files import read, write_atomically, writing
from pfedes.fleet.flare.engine import Engine
from pfedes.fleet.flare.policy import write_site_policy
from pfedes.fleet.flare.site import TERMS
from pfedes.participant import Participant
from pfedes.runlock import alone
from pfedes.seat import Seat, SeatRecord

LOOK = 0.5  # seconds between two looks

Say = Callable[[str], None]


class Joining:
    """Keeps the site up, and says what happens."""

    def __init__(self, kit: Path, participant: Participant, say: Say) -> None:
        self.kit = kit
        self.terms: Config = _terms(kit)
        self.participant = _fitting(participant, self.terms)
        self.seat = Seat(Path(participant.state))
        self.say = say
        output = self.seat.directory / "site.log"
        self.engine = Engine("client", kit, participant.name, output)

    def run(self, *, leave: bool) -> None:
        """Until stopped; with `leave`, until the federation is finished."""
        with writing(self.seat.state):
            self.seat.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = f"another 'pfedes join' is at work in {self.seat.directory}"
        with alone(self.seat.directory / "join.lock", taken):
            self._put_key()
            write_site_policy(self.kit, self.participant, self.terms)
            self._stay(leave=leave)

    def _stay(self, *, leave: bool) -> None:
        before = at_first = self.seat.record()  # perhaps of a federation that goes on
        try:
            while True:
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

    def _put_key(self) -> None:
        """Into a kit that came without: the key has never been elsewhere."""
        place, own = self.kit / "startup" / "client.key", key_of(self.participant)
        if not place.exists():
            if not own.exists():
                raise StoreError(f"{self.kit} has no key, and there is none in {own.parent}")
            write_atomically(place, read(own))

    def _tell(self, before: SeatRecord | None, record: SeatRecord) -> None:
        if before is None or record.run != before.run:
            before = SeatRecord()
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


def _terms(kit: Path) -> Config:
    if not (kit / TERMS).is_file():
        raise StoreError(f"{kit} is no kit of a federation: {TERMS} is missing")
    return configure(kit / TERMS)


def _fitting(participant: Participant, terms: Config) -> Participant:
    key_of(participant)  # says so if there is no place for it
    names = terms.federation.participants
    if participant.name not in names:
        raise ConfigError(f"the kit is not for {participant.name}: it knows {', '.join(names)}")
    return participant
