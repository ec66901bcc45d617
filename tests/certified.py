"""An authority of the tests' own, and people with certificates of it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

BITS = 1024  # quick to make; nothing depends on it


@dataclass(frozen=True)
class Holder:
    """A key and the certificate for it."""

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)


def authority(name: str = "authority") -> Holder:
    key = rsa.generate_private_key(65537, BITS)
    return Holder(key, _certificate(name, key, name, key))


def certified(name: str, by: Holder, *, days: int = 30) -> Holder:
    """Somebody whose certificate ends in so many days."""
    key = rsa.generate_private_key(65537, BITS)
    issuer = by.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    return Holder(key, _certificate(name, key, str(issuer), by.key, days))


def _certificate(
    name: str, key: rsa.RSAPrivateKey, issuer: str, signer: rsa.RSAPrivateKey, days: int = 30
) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=100))
        .not_valid_after(now + timedelta(days=days))
        .sign(signer, hashes.SHA256())
    )
