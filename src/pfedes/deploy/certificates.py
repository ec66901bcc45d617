"""The certificates of a federation: their owners, and when they expire.

Every certificate that is handed out is also kept in the federation's directory. It holds no
secret; it says when to renew, and a new one can be signed for the same key without asking.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from pfedes.deploy.coordinator.layout import Layout
from pfedes.errors import DamageError
from pfedes.files import read

DAY = 24 * 3600.0  # seconds
SOON = timedelta(days=30)  # before its end a certificate is warned of


@dataclass(frozen=True)
class Certificate:
    """The properties of a certificate that matter here."""

    name: str  # '' if it has no name, or several
    made: datetime
    ends: datetime
    key: CertificatePublicKeyTypes

    @property
    def key_id(self) -> str:
        """The SHA-256 of the public key: the same for all certificates of one key."""
        return key_id(self.key)


def key_id(key: CertificatePublicKeyTypes) -> str:
    return sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def parse_certificate(data: bytes) -> Certificate:
    """A certificate in PEM or DER format, or a ValueError."""
    pem = data.lstrip().startswith(b"-----")
    load = x509.load_pem_x509_certificate if pem else x509.load_der_x509_certificate
    found = load(data)
    names = [str(part.value) for part in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        key = found.public_key()
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from None
    name = names[0] if len(names) == 1 else ""
    return Certificate(name, found.not_valid_before_utc, found.not_valid_after_utc, key)


def read_certificate(path: Path) -> Certificate:
    try:
        return parse_certificate(read(path))
    except ValueError:
        raise DamageError(f"{path} is not a certificate") from None


def ending(whose: str, ends: datetime, remedy: str) -> str | None:
    """The line that warns of a certificate's end, from 30 days before it on."""
    left = ends - datetime.now(UTC)
    if left > SOON:
        return None
    day = ends.date().isoformat()
    if left <= timedelta(0):
        return f"{whose} expired on {day}: {remedy}"
    days = f"{left.days} day{'' if left.days == 1 else 's'}"
    return f"{whose} expires on {day}, in {days}: {remedy}"


def certificates_of(layout: Layout, names: Iterable[str]) -> dict[str, datetime]:
    """When the certificates of a federation end: its own three, then the participants'."""
    places = {
        "authority": layout.server / "startup" / "rootCA.pem",
        "server": layout.server / "startup" / "server.crt",
        "admin": layout.admin / "startup" / "client.crt",
    }
    found = {whose: place for whose, place in places.items() if place.exists()}
    ends = {whose: read_certificate(place).ends for whose, place in found.items()}
    for name in names:
        if (place := layout.certificate(name)).exists():
            ends[name] = read_certificate(place).ends
    return ends


def endings(layout: Layout, names: Iterable[str]) -> list[str]:
    """A line for every certificate of a federation that ends soon, with the remedy."""
    own = {
        "authority": "pfedes renew --authority",
        "server": "pfedes renew --server",
        "admin": "pfedes renew --server",
    }
    lines = []
    for whose, ends in certificates_of(layout, names).items():
        command = own.get(whose, f"pfedes renew {whose}")
        lines.append(ending(f"the certificate of {whose}", ends, f"'{command}' renews it"))
    return [line for line in lines if line is not None]


class Reminders:
    """Lines that bear repeating, once a day."""

    def __init__(self, find: Callable[[], list[str]]) -> None:
        self._find = find
        self._next = 0.0

    def due(self) -> list[str]:
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + DAY
        return self._find()
