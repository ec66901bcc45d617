"""Expelling participants and renewing certificates. The run continues with the same keys."""

import shutil
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from pfedes.config import Config, configure
from pfedes.deploy.certificates import read_certificate
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.provisioning import (
    AUTHORITY_DAYS,
    forget_issued,
    issued,
    keep_certificate,
    replacing,
    update_authority,
)
from pfedes.deploy.coordinator.terms import with_participants
from pfedes.deploy.kit import KEY, write_kit
from pfedes.deploy.names import ADMIN
from pfedes.deploy.participant.keys import VALID_DAYS, read_authority, reissue
from pfedes.deploy.revocation import read_revocations
from pfedes.errors import DamageError, StoreError, unknown
from pfedes.files import read, write_atomically, writing
from pfedes.store.lock import in_turn


def revoke(layout: Layout, name: str) -> None:
    """Expels a participant, at once and wherever its kit was copied to.

    Its rounds so far stay part of the run. The authority is not needed.
    """
    with in_turn(_begun(layout).changing):
        config = configure(layout.config)
        people = config.federation.participants
        place = layout.certificate(name)
        if name not in {*people, *issued(layout)} and not place.exists():
            raise StoreError(unknown("participant", name, people))
        keys = {read_certificate(place).key_id} if place.exists() else set()
        # First of all: the server looks at this list, twice a second.
        read_revocations(layout.revoked).revoke(name, keys).write(layout.revoked)
        rest = tuple(other for other in people if other != name)
        write_atomically(layout.config, with_participants(config, rest).to_toml().encode())
        forget_issued(layout, name)
        with writing(layout.kits / name):
            shutil.rmtree(layout.kits / name, ignore_errors=True)


def renew(layout: Layout, name: str) -> Path:
    """A participant's kit with a new certificate for the key that it has.

    The key itself is in it only if the coordinator's copy of the kit still has it.
    """
    with in_turn(_begun(layout).changing):
        config = configure(layout.config)
        if name not in config.federation.participants:
            raise StoreError(unknown("participant", name, config.federation.participants))
        if not (place := layout.certificate(name)).exists():
            raise StoreError(
                f"no certificate of {name} is known here: 'pfedes admit {name} --request "
                f"{name}.csr' makes one for the key of a request"
            )
        authority = read_authority(layout)
        certificate = reissue(authority, _read(place), VALID_DAYS)
        kit = layout.kits / name
        key = read(kit / KEY) if (kit / KEY).exists() else None
        with replacing(kit) as work:
            write_kit(work, config, _pem(authority.certificate), certificate, key)
        _replace(layout, name, certificate)
        keep_certificate(layout, name, certificate)
        return kit


def renew_server(layout: Layout) -> None:
    """The certificates of the server and of the session that submits jobs."""
    with in_turn(_begun(layout).changing):
        config, authority = configure(layout.config), read_authority(layout)
        for name, place in _own(layout, config).items():
            certificate = reissue(authority, _read(place), VALID_DAYS)
            write_atomically(place, certificate)
            _replace(layout, name, certificate)


def renew_authority(layout: Layout) -> None:
    """The authority's own certificate, for the key that it has: what it signed stays valid."""
    with in_turn(_begun(layout).changing):
        authority = read_authority(layout)
        certificate = reissue(authority, authority.certificate, AUTHORITY_DAYS)

        def change(tree: dict[str, Any]) -> None:
            tree["root_cert"] = certificate.decode()

        update_authority(layout, change)
        for place in (layout.server, layout.admin):
            write_atomically(place / "startup" / "rootCA.pem", certificate)


def _begun(layout: Layout) -> Layout:
    if not layout.config.exists():
        raise StoreError(f"{layout.directory} holds no federation: see 'pfedes serve'")
    return layout


def _own(layout: Layout, config: Config) -> dict[str, Path]:
    """The coordinator's own certificates, by the names that FLARE remembers them by."""
    return {
        config.federation.host: layout.server / "startup" / "server.crt",
        ADMIN: layout.admin / "startup" / "client.crt",
    }


def _replace(layout: Layout, name: str, certificate: bytes) -> None:
    """FLARE's provisioning would hand out the old one again."""

    def change(tree: dict[str, Any]) -> None:
        if isinstance(kept := tree.get(name), dict):
            kept["cert"] = certificate.decode()

    update_authority(layout, change)


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read(path))
    except ValueError:
        raise DamageError(f"{path} is not a certificate") from None


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)
