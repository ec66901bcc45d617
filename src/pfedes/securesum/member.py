"""A member's side of a secure sum: it masks for a set of members, and opens one set, once.

    DIRECTORY/key            the member's private key for this run
    DIRECTORY/00001.json     what it masked and opened in round 1, written before anything leaves

A member opens one set of members in a round, and then no round before it: from two sums that differ
by one member, that member's value would follow. Computing the value again in between does not
help, since the same training gives the same value.
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import ValidationError

from pfedes.errors import DamageError, RefusedError, WireError
from pfedes.files import make_private_directory, read, remove, write_atomically
from pfedes.section import Section
from pfedes.securesum.masking import (
    KEY_BYTES,
    NONCE_BYTES,
    Integers,
    Ready,
    agreed,
    check_members,
    derived,
    digest_of,
    masked,
)
from pfedes.securesum.shamir import SHARE_BYTES, split

CIPHER_NONCE_BYTES = 12
SEALED_BYTES = CIPHER_NONCE_BYTES + SHARE_BYTES + 16
MOST_SETS = 64
"""The most sets for which a value is masked; each dropout makes a new set necessary."""


@dataclass(frozen=True)
class Masked:
    """A member's answer to a set of members: its masked value, and a share for every member."""

    values: Integers
    shares: tuple[bytes, ...]  # in the members' order; zeros at its own place


class MaskedSet(Section):
    """A set of members for which a value was masked."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    seed: str
    share: str  # its own share of its own seed
    shares: tuple[str, ...]


class Account(Section):
    """All that a member masked and opened in a round."""

    nonce: str
    value: str  # its digest: one nonce stands for one value
    asked: str  # the digest of what it is the answer to, which must be the same for all members
    attempts: dict[str, MaskedSet]
    opened: str = ""  # the digest of the one set that was opened


class Member:
    """One participant's part in the sums of one run."""

    def __init__(self, directory: Path, run: str, name: str) -> None:
        self.directory = directory
        self.run = run
        self.name = name
        self._private: X25519PrivateKey | None = None

    @property
    def key(self) -> bytes:
        """The public half of the member's key for this run."""
        return self._key().public_key().public_bytes_raw()

    def ready(self, round: int, values: Integers, asked: str) -> bytes:
        """The nonce that stands for the member's value in a round, drawn when it is new.

        It will only be in a sum with members that were `asked` for the same. A recomputed value
        that differs has another nonce: what was masked for the one before can no longer be opened.
        """
        self._check_order(round)
        account = self._account(round)
        same = account is not None and (account.value, account.asked) == (_digest(values), asked)
        if account is not None and same:
            return bytes.fromhex(account.nonce)
        if account is not None and account.opened:
            raise RefusedError(f"the sum of round {round} was opened, with another value")
        nonce = os.urandom(NONCE_BYTES)
        account = Account(nonce=nonce.hex(), value=_digest(values), asked=asked, attempts={})
        self._write(round, account)
        return nonce

    def mask(
        self,
        round: int,
        values: Integers,
        members: Sequence[Ready],
        known: Mapping[str, bytes],
        least: int,
    ) -> Masked:
        """The member's value, masked for these members; a RefusedError unless all is in order.

        `known` are the keys that the member trusts by name; it takes part in no sum of fewer than
        `least`. For the same members the answer is the same, bit for bit.
        """
        account = self._account_for(round, values)
        digest = digest_of(self.run, round, members, account.asked)
        place = self._check(bytes.fromhex(account.nonce), members, known, least)
        _check_open(round, account, digest)
        if digest.hex() not in account.attempts and len(account.attempts) >= MOST_SETS:
            raise RefusedError(f"masked for {MOST_SETS} sets of members already")
        secrets = [
            None if index == place else agreed(self._key(), member.key)
            for index, member in enumerate(members)
        ]
        if (attempt := account.attempts.get(digest.hex())) is None:
            attempt = _masked_set(members, place, secrets, digest)
            attempts = {**account.attempts, digest.hex(): attempt}
            self._write(round, account.model_copy(update={"attempts": attempts}))
        hidden = masked(values, bytes.fromhex(attempt.seed), place, secrets, digest)
        return Masked(hidden, tuple(map(_from_text, attempt.shares)))

    def digest(self, round: int, members: Sequence[Ready]) -> bytes:
        """T of these members, by what the member itself was asked for."""
        account = self._account(round)
        if account is None:
            raise RefusedError(f"nothing is ready for the sum of round {round}")
        return digest_of(self.run, round, members, account.asked)

    def open(self, round: int, digest: bytes, sealed: Sequence[bytes]) -> tuple[bytes, ...]:
        """The member's share of every member's seed, in their order, for one set and no other.

        `sealed` are the shares that the members made for it, in their order. That every one of them
        can be read shows that all have masked for the same members.
        """
        account = self._account(round)
        attempt = account.attempts.get(digest.hex()) if account is not None else None
        if account is None or attempt is None:
            raise RefusedError("nothing was masked for these members")
        _check_open(round, account, digest)
        self._check_order(round)
        place = attempt.names.index(self.name)
        if len(sealed) != len(attempt.names):
            raise WireError(f"{len(sealed)} shares of {len(attempt.names)} members")
        opened = []
        for index, (name, key) in enumerate(zip(attempt.names, attempt.keys, strict=True)):
            if index == place:
                opened.append(_from_text(attempt.share))
            else:
                secret = agreed(self._key(), bytes.fromhex(key))
                opened.append(_unseal(sealed[index], secret, digest, name, self.name))
        if not account.opened:
            self._write(round, account.model_copy(update={"opened": digest.hex()}))
        for earlier in self._rounds():
            if earlier < round:
                remove(self._place(earlier))
        return tuple(opened)

    def forget(self) -> None:
        """Removes the key and all masks of a run that has ended.

        What was opened stays known: somebody who only says that the run has ended could otherwise
        have another set opened.
        """
        remove(self.directory / "key")  # first: without it the rest is of no use
        self._private = None
        for round in self._rounds():
            if (account := self._account(round)) is not None:
                self._write(round, account.model_copy(update={"attempts": {}}))

    def _check(
        self,
        nonce: bytes,
        members: Sequence[Ready],
        known: Mapping[str, bytes],
        least: int,
    ) -> int:
        """The member's place among the members, once nothing speaks against them."""
        check_members(members)
        if len(members) < max(least, 2):
            raise RefusedError(f"a sum of {len(members)} members: {max(least, 2)} are the fewest")
        if Ready(self.name, self.key, nonce) not in members:
            raise RefusedError("the set lacks this member's own entry, or has changed it")
        for member in members:
            if member.name == self.name:
                continue
            if member.name not in known:
                raise RefusedError(f"{member.name!r:.100} is not known as a member")
            if not hmac.compare_digest(known[member.name], member.key):
                raise RefusedError(f"the key of {member.name} is not the one that is known")
        return [member.name for member in members].index(self.name)

    def _account_for(self, round: int, values: Integers) -> Account:
        """The round's account, which `ready` has opened for this value."""
        self._check_order(round)
        account = self._account(round)
        if account is None or account.value != _digest(values):
            raise RefusedError(f"nothing is ready for the sum of round {round}")
        return account

    def _check_order(self, round: int) -> None:
        for later in self._rounds():
            if later > round and (account := self._account(later)) is not None and account.opened:
                raise RefusedError(f"the sum of round {later} was opened before")

    def _rounds(self) -> list[int]:
        return sorted(int(path.stem) for path in self.directory.glob("[0-9]*.json"))

    def _account(self, round: int) -> Account | None:
        path = self._place(round)
        if not path.exists():
            return None
        try:
            return Account.model_validate_json(read(path))
        except ValidationError:
            # Not treated as missing: the record of opened sets would be lost.
            raise DamageError(f"{path} is damaged") from None

    def _write(self, round: int, account: Account) -> None:
        make_private_directory(self.directory)
        write_atomically(self._place(round), account.model_dump_json().encode())

    def _place(self, round: int) -> Path:
        return self.directory / f"{round:05d}.json"

    def _key(self) -> X25519PrivateKey:
        if self._private is None:
            path = self.directory / "key"
            if not path.exists():
                make_private_directory(self.directory)
                write_atomically(path, X25519PrivateKey.generate().private_bytes_raw())
            data = read(path)
            if len(data) != KEY_BYTES:
                raise DamageError(f"{path} is damaged")
            self._private = X25519PrivateKey.from_private_bytes(data)
        return self._private


def _check_open(round: int, account: Account, digest: bytes) -> None:
    """Refuses a set when another one was opened: with two, a member's value could follow."""
    if account.opened not in ("", digest.hex()):
        raise RefusedError(f"another sum of round {round} was opened before")


def _digest(values: Integers) -> str:
    return hashlib.sha256(values.astype("<i8").tobytes()).hexdigest()


def _masked_set(
    members: Sequence[Ready], place: int, secrets: Sequence[bytes | None], digest: bytes
) -> MaskedSet:
    """A new seed, with a share of it for every member."""
    seed = os.urandom(KEY_BYTES)
    own = members[place].name
    shares = split(int.from_bytes(seed, "big"), len(members))
    sealed = [
        bytes(SEALED_BYTES) if secret is None else _seal(share, secret, digest, own, member.name)
        for member, share, secret in zip(members, shares, secrets, strict=True)
    ]
    return MaskedSet(
        names=tuple(member.name for member in members),
        keys=tuple(member.key.hex() for member in members),
        seed=seed.hex(),
        share=_to_text(shares[place]),
        shares=tuple(map(_to_text, sealed)),
    )


def _seal(share: bytes, secret: bytes, digest: bytes, sender: str, receiver: str) -> bytes:
    nonce = os.urandom(CIPHER_NONCE_BYTES)
    key = derived(secret, digest, "share", sender, receiver)
    return nonce + AESGCM(key).encrypt(nonce, share, digest)


def _unseal(data: bytes, secret: bytes, digest: bytes, sender: str, receiver: str) -> bytes:
    key = derived(secret, digest, "share", sender, receiver)
    nonce, sealed = data[:CIPHER_NONCE_BYTES], data[CIPHER_NONCE_BYTES:]
    try:
        share = AESGCM(key).decrypt(nonce, sealed, digest)
    except (InvalidTag, ValueError):
        raise RefusedError(f"no share of {sender} that can be read") from None
    if len(share) != SHARE_BYTES:
        raise RefusedError(f"a share of {sender} of another length")
    return share


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_text(text: str) -> bytes:
    return base64.b64decode(text)
