"""What hides a summand: streams of random integers that cancel in the sum, or are opened.

    y_i = x_i + stream(b_i) + sum_{j>i} stream(s_ij) - sum_{j<i} stream(s_ij)     modulo 2^64

b_i is member i's own seed, of which all members hold shares; s_ij is the secret that i and j agree
on by their keys (X25519) and that nobody else ever learns. Every key is derived from these with
the digest T of the set of members, so that another set has other masks.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pfedes.errors import WireError

VERSION = "pfedes-sum-2"
KEY_BYTES = 32
NONCE_BYTES = 16
MOST_MEMBERS = 1024  # with a weight below 2^24 and numbers below 2^24 their sum is below 2^58

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Ready:
    """A member that has something to add: `nonce` stands for one value, forever."""

    name: str
    key: bytes
    nonce: bytes


def check_members(members: Sequence[Ready]) -> None:
    """Refuses members that are not in the order of their names, or occur twice."""
    names = [member.name for member in members]
    if names != sorted(set(names)):
        raise WireError("the members of a sum must be in the order of their names, nobody twice")
    if len({member.key for member in members}) < len(names):
        raise WireError("two members of a sum have the same key")
    if len(names) > MOST_MEMBERS:
        raise WireError(f"a sum of {len(names)} members: {MOST_MEMBERS} are the most")
    for member in members:
        if len(member.key) != KEY_BYTES or len(member.nonce) != NONCE_BYTES:
            raise WireError(f"{member.name!r:.100} has a key or nonce of another length")


def digest_of(run: str, round: int, members: Sequence[Ready], asked: str) -> bytes:
    """T, which binds everything that the members mask to one set of them.

    `asked` is what every member knows itself of what it was asked for. If a coordinator asks some
    for something else, so that they add next to nothing and the sum is another's value, they have
    another T: their masks do not cancel, and nobody opens.
    """
    tree = [VERSION, run, round, asked, [[m.name, m.key.hex(), m.nonce.hex()] for m in members]]
    return hashlib.sha256(json.dumps(tree).encode()).digest()


def agreed(key: X25519PrivateKey, other: bytes) -> bytes:
    """The secret that two members share."""
    try:
        return key.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise WireError("a key with which no secret can be agreed on") from None


def derived(secret: bytes, digest: bytes, *info: str) -> bytes:
    """A key for one use, and for one set of members."""
    hkdf = HKDF(hashes.SHA256(), KEY_BYTES, salt=digest, info=json.dumps(info).encode())
    return hkdf.derive(secret)


def stream(key: bytes, size: int) -> Words:
    """Random integers modulo 2^64. A key is used for one stream, so its counter starts at 0."""
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * size)), "<u8").astype(np.uint64)


def own_mask(seed: bytes, digest: bytes, size: int) -> Words:
    return stream(derived(seed, digest, "self"), size)


def masked(
    values: Integers, seed: bytes, place: int, secrets: Sequence[bytes | None], digest: bytes
) -> Integers:
    """The masked values of a member: under its own mask and one for each other member.

    `secrets` are those with all members in their order, None at the member's own `place`.
    """
    total = values.astype(np.uint64) + own_mask(seed, digest, len(values))
    for other, secret in enumerate(secrets):
        if secret is not None:
            mask = stream(derived(secret, digest, "mask"), len(values))
            total = total + mask if other > place else total - mask
    return total.astype(np.int64)
