"""The participant: from a kit and a participant.toml to a site that waits for a federation."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from pfedes.config.participant import Participant
from pfedes.deploy.certificates import parse_certificate
from pfedes.deploy.flare_config import write_site
from pfedes.deploy.kit import Kit, read_kit
from pfedes.deploy.participant.site_files import key_of
from pfedes.deploy.participant.standing import JOIN_LOCK
from pfedes.deploy.participant.state import ParticipantState
from pfedes.deploy.participant.waiting import WAITING, Say, Waiting
from pfedes.deploy.sizes import size_limits
from pfedes.errors import ConfigError, StoreError
from pfedes.files import read
from pfedes.fleet.process import again
from pfedes.store.lock import alone

log = logging.getLogger(__name__)


class Joining:
    """Checks and writes all that a site needs before it can wait."""

    def __init__(self, kit: Path, participant: Participant, say: Say) -> None:
        self.kit = read_kit(kit)
        self.participant = _fitting(participant, self.kit)
        self.seat = ParticipantState(Path(participant.state))
        self.say = say
        certificates = {
            "your certificate": self.kit.certificate,
            "the authority's certificate": self.kit.authority,
        }
        self.waiting = Waiting(
            name=participant.name,
            directory=self.seat.directory,
            limits=size_limits(self.kit.terms.federation.max_message),
            ends={whose: parse_certificate(data).ends for whose, data in certificates.items()},
        )

    def run(self) -> NoReturn:
        """Writes the site's workspace; then the same command, begun again, stays in `Waiting`.

        By now this process holds torch and a model, which a process that waits has no use for.
        The lock is handed over with it.
        """
        self.seat.make()
        taken = f"another 'pfedes join' is at work in {self.seat.directory}"
        for line in self.waiting.endings(refuse=True):
            log.warning("%s", line)
        with alone(self.seat.directory / JOIN_LOCK, taken) as lock:
            write_site(self.waiting.workspace, self.kit, self._key(), self.participant)
            if self.kit.terms.privacy.secure_sum:
                for line in self._about_sums():
                    self.say(line)
            self.say(f"everything that leaves is listed in {self.seat.sent_file}")
            again(lock, **{WAITING: self.waiting.model_dump_json()})

    def _about_sums(self) -> Iterator[str]:
        """Notes on the participant's fingerprint, and on what its secure sums rely on."""
        print = f"sha256:{parse_certificate(self.kit.certificate).key_id}"
        yield f"your fingerprint, for the others' [peers]: {print}"
        if self.kit.key is not None:
            yield (
                "the coordinator made your key: the secure sum protects you only if it "
                "kept no copy; see 'pfedes request'"
            )
        if not self.participant.peers:
            yield (
                "your file has no [peers]: the secure sum protects you only if the "
                "coordinator does not forge participants; compare fingerprints and list "
                "them there"
            )

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


def _fitting(participant: Participant, kit: Kit) -> Participant:
    key_of(participant)  # says so if there is no place for it
    if participant.name != kit.name:
        raise ConfigError(f"the kit is for {kit.name}, not for {participant.name}")
    return participant
