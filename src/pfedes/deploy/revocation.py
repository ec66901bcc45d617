"""The participants that were expelled from a federation.

The list has a time for each expelled participant. Certificates of that name that were made until
then are refused, however often the kit was copied, and so are all others with the same key. If the
participant is admitted again, it gets a new key and a later certificate.
"""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from pydantic import AwareDatetime, TypeAdapter, ValidationError

from pfedes.deploy.certificates import Certificate, key_id
from pfedes.errors import DamageError, StoreError
from pfedes.files import parse_json, read, write_atomically
from pfedes.section import Section


class Revoked(Section):
    """An expelled participant."""

    until: AwareDatetime  # certificates that were made until then are refused
    keys: tuple[str, ...] = ()  # of all certificates that were known
    again: bool = False  # whether they were admitted again, with a new key


_ENTRIES = TypeAdapter(dict[str, Revoked])


class Revocations:
    """The list as it was when it was read."""

    def __init__(self, entries: Mapping[str, Revoked] = MappingProxyType({})) -> None:
        self.entries = dict(entries)

    @property
    def names(self) -> set[str]:
        """Names of the participants that may not take part."""
        return {name for name, entry in self.entries.items() if not entry.again}

    def refuses(self, certificate: Certificate) -> bool:
        if any(certificate.key_id in entry.keys for entry in self.entries.values()):
            return True
        entry = self.entries.get(certificate.name)
        return entry is not None and certificate.made <= entry.until

    def check_admission(
        self, name: str, key: CertificatePublicKeyTypes | None, *, again: bool
    ) -> None:
        """Refuses an expelled participant unless it is admitted again, and always its old keys."""
        if name in self.names and not again:
            day = self.entries[name].until.date().isoformat()
            raise StoreError(
                f"{name} was revoked on {day}: 'pfedes admit {name} --again' lets {name} back in, "
                "with a new key and certificate"
            )
        if key is not None and any(key_id(key) in entry.keys for entry in self.entries.values()):
            raise StoreError(
                f"the request of {name} is for a key that was revoked: {name} removes 'site.key' "
                "from its state directory and runs 'pfedes request' again"
            )

    def wait_for_later_certificates(self, name: str) -> None:
        """Certificates know of whole seconds only: waits until one made now counts as later."""
        while datetime.now(UTC).replace(microsecond=0) <= self.entries[name].until:
            time.sleep(0.05)

    def revoke(self, name: str, keys: set[str]) -> "Revocations":
        before = self.entries.get(name)
        known = keys | set(before.keys if before is not None else ())
        entry = Revoked(until=datetime.now(UTC), keys=tuple(sorted(known)))
        return Revocations({**self.entries, name: entry})

    def admit_again(self, name: str) -> "Revocations":
        entry = self.entries[name].model_copy(update={"again": True})
        return Revocations({**self.entries, name: entry})

    def write(self, path: Path) -> None:
        tree = {name: entry.model_dump(mode="json") for name, entry in self.entries.items()}
        write_atomically(path, json.dumps(tree, indent=2).encode())


def read_revocations(path: Path) -> Revocations:
    """The list in a file; empty without the file."""
    if not path.exists():
        return Revocations()
    tree: Any = parse_json(path, read(path))
    try:
        return Revocations(_ENTRIES.validate_python(tree))
    except ValidationError as error:
        raise DamageError(f"{path} is damaged: {str(error).splitlines()[0]}") from None
