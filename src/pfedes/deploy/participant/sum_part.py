"""A participant's part in secure sums: what its messages about them say, and what it refuses."""

import base64
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pfedes.config.participant import Participant
from pfedes.core.names import check_name
from pfedes.core.payload import Payload, Value, whole
from pfedes.core.protocol import LAST_ROUND, SUMMAND, Reply
from pfedes.deploy.sum_messages import (
    MASK,
    masked_message,
    members_in,
    opened_message,
    opening_in,
)
from pfedes.errors import DamageError, RefusedError
from pfedes.files import read
from pfedes.securesum.credentials import Peers, sign_key
from pfedes.securesum.masking import Integers
from pfedes.securesum.member import Member
from pfedes.store.client_store import ClientStore


@dataclass(frozen=True)
class Identity:
    """A participant's identity to the others: the key of its kit, and the common authority."""

    key: rsa.RSAPrivateKey
    authority: x509.Certificate


def read_identity(workspace: Path) -> Identity:
    """The identity of a site, from the files of `pfedes join`."""
    startup = workspace / "startup"
    try:
        key = load_pem_private_key(read(startup / "client.key"), None)
        authority = x509.load_pem_x509_certificate(read(startup / "rootCA.pem"))
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise DamageError(f"{startup} does not hold the key and the authority of a kit")
    return Identity(key, authority)


class SumPart:
    """Answers what is asked of one participant about secure sums."""

    def __init__(
        self, participant: Participant, identity: Identity, least: int, directory: Path
    ) -> None:
        """`directory` keeps keys and accounts; in no sum of fewer than `least` it takes part."""
        self.participant = participant
        self.identity = identity
        self.least = least
        self.directory = directory
        self.peers = Peers(directory / "peers.json", participant.peers)

    def in_place_of(self, summand: Reply, asked: str) -> Reply:
        """What leaves at first: that the summand is ready, under a nonce and a signed key.

        `asked` is the digest of what it answers: see `asked_for`.
        """
        meta = summand.payload.meta
        run, round = str(meta["run"]), whole(meta["round"])
        member = self._member(run)
        values: Integers = summand.payload.tensors[SUMMAND].numpy()
        identity = self.identity
        signature = sign_key(identity.key, identity.authority, run, member.name, member.key)
        ready: dict[str, Value] = {
            "nonce": member.ready(round, values, asked).hex(),
            "sum_key": member.key.hex(),
            "sum_signature": base64.b64encode(signature).decode(),
        }
        return Reply(summand.client, Payload({}, {**meta, **ready}), summand.measures)

    def answer(self, kind: str, message: Payload, store: ClientStore) -> Reply:
        """The answer to a request to mask or to open."""
        run, round = message.meta.get("run"), message.meta.get("round")
        if not isinstance(run, str) or type(round) is not int or not 1 <= round <= LAST_ROUND:
            raise RefusedError("a secure sum of no run or round")
        member = self._member(check_name(run))
        if kind == MASK:
            return self._masked(member, round, message, store)
        digest, sealed = opening_in(message)
        opened = member.open(round, digest, sealed)
        return self._reply(round, len(opened), digest, Payload(opened_message(opened)))

    def forget(self, run: str) -> None:
        """When the run has ended: no sum of it can be opened any more."""
        self._member(run).forget()

    def _masked(self, member: Member, round: int, message: Payload, store: ClientStore) -> Reply:
        entries = members_in(message)
        given = [entry.credential for entry in entries]
        known = self.peers.check(given, self.identity.authority, member.run, member.name)
        members = [entry.ready for entry in entries]
        stored = store.load(member.run, member.name, round).reply.tensors.get(SUMMAND)
        if stored is None:
            raise RefusedError(f"round {round} was not done for a secure sum")
        masked = member.mask(round, stored.numpy(), members, known, self.least)
        return self._reply(
            round, len(members), member.digest(round, members), Payload(masked_message(masked))
        )

    def _reply(self, round: int, members: int, digest: bytes, payload: Payload) -> Reply:
        said: dict[str, Value] = {"noted": round, "members": members, "set": digest.hex()}
        return Reply(self.participant.name, Payload(payload.tensors, said))

    def _member(self, run: str) -> Member:
        return Member(self.directory / run, run, self.participant.name)
