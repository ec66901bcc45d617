"""A participant's kit: certificates and terms, and nothing that could run.

KIT/
    authority.crt      the certificate of the federation's authority
    participant.crt    the participant's certificate; its common name is the participant's name
    participant.key    its private key; absent if the participant made it with 'pfedes request'
    federation.toml    the terms: host and port of the coordinator, names, method

A kit comes from another party. Every other file that the engine needs is generated at the
participant's from templates of the installed package (`flare_config`), and a kit that holds
any other file is refused; the error names that file.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from pfedes.config import Config, validate
from pfedes.deploy.certificates import parse_certificate
from pfedes.deploy.names import check_host
from pfedes.errors import ConfigError, DiskError, StoreError, said
from pfedes.files import write_atomically
from pfedes.methods import METHODS

AUTHORITY = "authority.crt"
CERTIFICATE = "participant.crt"
KEY = "participant.key"
TERMS = "federation.toml"
LARGEST = {AUTHORITY: 2**16, CERTIFICATE: 2**16, KEY: 2**16, TERMS: 2**20}  # bytes
NEEDED = (AUTHORITY, CERTIFICATE, TERMS)
ELSEWHERE = ("participants", "compare")  # sections that name files and modules of a simulation


@dataclass(frozen=True)
class Kit:
    """The contents of a kit, read once: later changes of its files have no effect."""

    name: str  # of the participant, by its certificate
    terms: Config
    authority: bytes
    certificate: bytes
    key: bytes | None

    def check_key(self, path: Path, key: bytes) -> None:
        """Refuses a private key that does not belong to the certificate."""
        _check_key(path, key, _certificate(Path(CERTIFICATE), self.certificate))


def write_kit(directory: Path, terms: Config, authority: bytes, certificate: bytes,
              key: bytes | None) -> None:  # fmt: skip
    """The files of a kit, into a directory that is there."""
    text = terms.model_copy(update={"participants": ()}).to_toml()
    files = {AUTHORITY: authority, CERTIFICATE: certificate, KEY: key, TERMS: text.encode()}
    for name, data in files.items():
        if data is not None:
            write_atomically(directory / name, data)  # readable by the owner only


def read_kit(directory: Path) -> Kit:
    """A kit, or the line that says what in it is wrong."""
    files = _read_files(directory)
    authority = _certificate(directory / AUTHORITY, files[AUTHORITY])
    certificate = _certificate(directory / CERTIFICATE, files[CERTIFICATE])
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError, ValueError):
        raise StoreError(
            f"{directory / CERTIFICATE} was not issued by the authority of {directory / AUTHORITY}"
        ) from None
    if (key := files.get(KEY)) is not None:
        _check_key(directory / KEY, key, certificate)
    terms = _terms(directory / TERMS, files[TERMS])
    return Kit(_common_name(certificate), terms, files[AUTHORITY], files[CERTIFICATE], key)


def _check_key(path: Path, key: bytes, certificate: x509.Certificate) -> None:
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = serialization.Encoding.PEM
    try:
        public = serialization.load_pem_private_key(key, None).public_key()
    except Exception as error:  # cryptography raises several kinds
        raise StoreError(f"{path} is not a private key: {said(error)}") from None
    if public.public_bytes(pem, spki) != certificate.public_key().public_bytes(pem, spki):
        raise StoreError(f"{path} does not belong to the kit's {CERTIFICATE}")


def _read_files(directory: Path) -> dict[str, bytes]:
    try:
        here = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise DiskError(f"cannot read the kit {directory}: {error.strerror}") from None
    try:
        with os.scandir(here) as entries:
            names = sorted(entry.name for entry in entries)
        if missing := [name for name in NEEDED if name not in names]:
            raise StoreError(f"{directory} is not a kit of a federation: {missing[0]} is missing")
        if foreign := [name for name in names if name not in LARGEST]:
            raise StoreError(
                f"{directory / foreign[0]} is not part of a kit, which holds "
                f"{', '.join(LARGEST)} and nothing else: remove it if you put it there yourself, "
                "else ask the coordinator for a new kit"
            )
        return {name: _read_file(here, directory / name) for name in names}
    finally:
        os.close(here)


def _read_file(here: int, path: Path) -> bytes:
    try:
        # A link is not followed, and a pipe is not waited for.
        handle = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
    except OSError as error:
        raise StoreError(f"{path} must be a file, not a link: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise StoreError(f"{path} must be a file")
        data = file.read(LARGEST[path.name] + 1)
    if len(data) > LARGEST[path.name]:
        raise StoreError(f"{path} is too large: {LARGEST[path.name]:,} bytes are the most")
    return data


def _certificate(path: Path, data: bytes) -> x509.Certificate:
    try:
        (certificate,) = x509.load_pem_x509_certificates(data)
        parse_certificate(data)  # all that is looked at later can be read
    except ValueError:
        raise StoreError(f"{path} must be one certificate in PEM format") from None
    return certificate


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise StoreError(f"{CERTIFICATE} must name one participant")
    return str(names[0].value)


def _terms(path: Path, data: bytes) -> Config:
    """The terms; nothing that they name is imported or read."""
    try:
        tree = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    if found := [key for key in ELSEWHERE if tree.get(key)]:
        raise ConfigError(f"{path}: the terms of a federation have no section {found[0]!r}")
    method = tree.get("method", {})
    name = method.get("name", "pfedes") if isinstance(method, Mapping) else method
    if str(name) not in METHODS:
        raise ConfigError(f"{path}: method {name!r:.60} is not built in")
    terms = validate(tree)
    check_host(terms.federation.host)
    return terms
