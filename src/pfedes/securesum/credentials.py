"""The owner of a key: a member's key for a run is signed by the key of its certificate.

The coordinator hands out certificates, so it could make one in a member's name. A member therefore
knows the others by the fingerprints of their certificates' keys: those that its owner has compared
with the others (`[peers]`), or else those that it saw first, which protects only from a coordinator
that did not forge them from the beginning.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from pfedes.errors import DamageError, RefusedError
from pfedes.files import parse_json, read, write_atomically
from pfedes.securesum.masking import KEY_BYTES, VERSION

_PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


@dataclass(frozen=True)
class Credential:
    """A member's key for a run, and what shows that it is the member's."""

    name: str
    key: bytes
    certificate: bytes  # PEM or DER
    signature: bytes


def fingerprint(key: rsa.RSAPublicKey) -> str:
    """The fingerprint that people compare; equal for all certificates of one key."""
    data = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{sha256(data).hexdigest()}"


def fingerprint_of(path: Path) -> str:
    """The same, of the public half of a private key in a file."""
    try:
        key = load_pem_private_key(read(path), None)
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise DamageError(f"{path} is not the private key of an earlier 'pfedes request'")
    return fingerprint(key.public_key())


def sign_key(
    private: rsa.RSAPrivateKey, authority: x509.Certificate, run: str, name: str, key: bytes
) -> bytes:
    """The signature of a member's key for a run of this authority's federation."""
    return private.sign(_statement(authority, run, name, key), _PADDING, hashes.SHA256())


def check_credential(given: Credential, authority: x509.Certificate, run: str) -> str:
    """The fingerprint of the signer of a member's key; a RefusedError if it is not valid."""
    whose = f"the key of {given.name!r:.100}"
    public, name = _holder(given, authority)
    if name != given.name:
        raise RefusedError(f"{whose} comes with a certificate of {name!r:.100}")
    if len(given.key) != KEY_BYTES:
        raise RefusedError(f"{whose} has another length")
    statement = _statement(authority, run, given.name, given.key)
    try:
        public.verify(given.signature, statement, _PADDING, hashes.SHA256())
    except InvalidSignature:
        raise RefusedError(f"{whose} is not signed by the key of its certificate") from None
    return fingerprint(public)


class Peers:
    """The fingerprints by which a member knows the others."""

    def __init__(self, pinned: Path, compared: Mapping[str, str]) -> None:
        """`compared` are those that the member's owner has; without any, `pinned` keeps the first
        that is seen of each."""
        self.pinned = pinned
        self.compared = dict(compared)

    @property
    def known(self) -> dict[str, str]:
        if self.compared:
            return self.compared
        if not self.pinned.exists():
            return {}
        tree = parse_json(self.pinned, read(self.pinned))
        if not isinstance(tree, dict) or not all(isinstance(v, str) for v in tree.values()):
            raise DamageError(f"{self.pinned} is damaged")
        return tree

    def check(
        self, given: Sequence[Credential], authority: x509.Certificate, run: str, own: str
    ) -> dict[str, bytes]:
        """The members' keys by name, each shown to be that of a known participant.

        With fingerprints of the owner's, somebody else is refused: whoever is made up by the
        coordinator would open what it likes.
        """
        found = {
            credential.name: check_credential(credential, authority, run)
            for credential in given
            if credential.name != own
        }
        known = self.known
        for name, print in found.items():
            if name not in known and self.compared:
                raise RefusedError(f"{name!r:.100} is not among [peers]: nobody compared its key")
            if known.get(name, print) != print:
                raise RefusedError(
                    f"{name} has another key than the one that is known: {print}. If {name} says "
                    "that it has a new one, change [peers], or remove its line from "
                    f"{self.pinned.name}"
                )
        if not self.compared and not found.items() <= known.items():
            tree = {**known, **found}
            write_atomically(self.pinned, json.dumps(tree, indent=1, sort_keys=True).encode())
        return {credential.name: credential.key for credential in given}


def _holder(given: Credential, authority: x509.Certificate) -> tuple[rsa.RSAPublicKey, str]:
    """The key and the name in a certificate that the federation's authority has issued."""
    whose = f"the certificate of {given.name!r:.100}"
    try:
        pem = given.certificate.lstrip().startswith(b"-----")
        load = x509.load_pem_x509_certificate if pem else x509.load_der_x509_certificate
        certificate = load(given.certificate)
        certificate.verify_directly_issued_by(authority)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        public = certificate.public_key()
    except InvalidSignature:
        raise RefusedError(f"{whose} was not issued by this federation's authority") from None
    except (TypeError, ValueError):
        raise RefusedError(f"{whose} cannot be read") from None
    if not isinstance(public, rsa.RSAPublicKey) or len(names) != 1:
        raise RefusedError(f"{whose} is not that of a participant")
    if not certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc:
        raise RefusedError(f"{whose} has ended, or has not begun")
    return public, str(names[0].value)


def _statement(authority: x509.Certificate, run: str, name: str, key: bytes) -> bytes:
    root = authority.public_key()
    federation = sha256(root.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    return json.dumps([VERSION, federation.hexdigest(), run, name, key.hex()]).encode()
