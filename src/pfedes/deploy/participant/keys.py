"""Keys that never leave the participant's machine: a request there, a signature here."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID
from nvflare.lighter.utils import Identity, generate_cert, load_private_key, serialize_cert

from pfedes.deploy.coordinator.layout import Layout
from pfedes.errors import DamageError, StoreError
from pfedes.files import make_private_directory, parse_json, read, write_atomically, writing
from pfedes.securesum.credentials import fingerprint

VALID_DAYS = 360  # as FLARE's own
KEY_BITS = 2048


@dataclass(frozen=True)
class Request:
    """The name on a request, and the public half of the participant's key."""

    name: str
    key: CertificatePublicKeyTypes


def write_request(name: str, key: Path, request: Path) -> str:
    """The request that others may see, for a private key that is made if there is none.

    A new key would make a kit for the old one useless. Returns the key's fingerprint.
    """
    private = _read_key(key) if key.exists() else _make_key(key)
    signed = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .sign(private, hashes.SHA256())
    )
    with writing(request):
        request.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return fingerprint(private.public_key())


def _make_key(path: Path) -> rsa.RSAPrivateKey:
    private = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    make_private_directory(path.parent)
    write_atomically(path, pem)  # readable by the owner only
    return private


def _read_key(path: Path) -> rsa.RSAPrivateKey:
    try:
        private = serialization.load_pem_private_key(read(path), None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, rsa.RSAPrivateKey):
        raise DamageError(f"{path} is not the private key of an earlier 'pfedes request'")
    return private


def read_request(name: str, path: Path) -> Request:
    """A request that was made by the holder of a key, for this name."""
    try:
        asked = x509.load_pem_x509_csr(read(path))
    except ValueError:
        raise StoreError(f"{path} is not a certificate request: see 'pfedes request'") from None
    names = [part.value for part in asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if not asked.is_signature_valid or names != [name]:
        raise StoreError(f"{path} is not {name}'s request")
    return Request(name, asked.public_key())


def sign(layout: Layout, organisation: str, request: Request) -> bytes:
    """A certificate for the key that a request shows, by the federation's authority."""
    authority = read_authority(layout)
    root = authority.certificate
    certificate = generate_cert(
        subject=Identity(request.name, organisation),
        issuer=_identity(root),
        signing_pri_key=authority.key,
        subject_pub_key=request.key,
        valid_days=min(VALID_DAYS, (root.not_valid_after_utc - datetime.now(UTC)).days),
    )
    signed: bytes = serialize_cert(certificate)
    return signed


@dataclass(frozen=True)
class Authority:
    """The federation's authority. The owner of its key decides who takes part."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey


def read_authority(layout: Layout) -> Authority:
    if not layout.authority.exists():
        raise StoreError(
            f"{layout.provision} does not hold the federation's authority: put it back to sign "
            "certificates"
        )
    tree = parse_json(layout.authority, read(layout.authority))
    root = x509.load_pem_x509_certificate(tree["root_cert"].encode())
    return Authority(root, load_private_key(tree["root_pri_key"]))


def reissue(authority: Authority, old: x509.Certificate, days: int) -> bytes:
    """The same certificate with new dates: same holder, same key, same rights."""
    now, root = datetime.now(UTC), authority.certificate
    ends = now + timedelta(days=days)
    if old.subject != root.subject:  # no certificate outlives the one that signed it
        ends = min(ends, root.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(root.subject)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(ends)
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _identity(certificate: x509.Certificate) -> Identity:
    """The subject of a certificate, in FLARE's terms."""
    names = {}
    for key, oid in (("name", NameOID.COMMON_NAME), ("org", NameOID.ORGANIZATION_NAME)):
        for attribute in certificate.subject.get_attributes_for_oid(oid):
            names[key] = attribute.value
    return Identity(names["name"], names.get("org"))
