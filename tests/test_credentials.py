"""Whose key it is: signatures, certificates and fingerprints of a secure sum's members."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from certified import Holder, authority, certified
from pfedes.errors import DamageError, RefusedError
from pfedes.securesum.credentials import (
    Credential,
    Peers,
    check_credential,
    fingerprint,
    sign_key,
)

ROOT, OTHER_ROOT = authority(), authority()
ADA, BEN, EVE = certified("ada", ROOT), certified("ben", ROOT), certified("eve", ROOT)
RUN = "run-1"


def credential(name: str, holder: Holder, key: bytes = b"k" * 32, run: str = RUN) -> Credential:
    signature = sign_key(holder.key, ROOT.certificate, run, name, key)
    return Credential(name, key, holder.pem, signature)


def test_a_signed_key_shows_the_fingerprint_of_its_holder() -> None:
    found = check_credential(credential("ada", ADA), ROOT.certificate, RUN)
    assert found == fingerprint(ADA.key.public_key())
    assert len(found) == len("sha256:") + 64


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        (lambda: credential("ada", EVE), "comes with a certificate of 'eve'"),
        (lambda: replace(credential("ada", EVE), certificate=ADA.pem), "not signed"),
        (lambda: replace(credential("ada", ADA), key=b"x" * 32), "not signed"),
        (lambda: replace(credential("ada", ADA), key=b"short"), "another length"),
        (lambda: credential("ada", ADA, run="run-2"), "not signed"),
        (lambda: replace(credential("ada", ADA), signature=b""), "not signed"),
        (lambda: replace(credential("ada", ADA), certificate=b"\x30junk"), "cannot be read"),
        (lambda: credential("ada", certified("ada", OTHER_ROOT)), "not issued by this"),
        (lambda: credential("ada", certified("ada", ROOT, days=-1)), "has ended"),
    ],
    ids=range(9),
)
def test_a_forged_key_is_refused(forged: Callable[[], Credential], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        check_credential(forged(), ROOT.certificate, RUN)


def test_a_key_of_another_federation_is_refused() -> None:
    """The same authority's name, another authority: its signature does not count here."""
    with pytest.raises(RefusedError):
        check_credential(credential("ada", ADA), OTHER_ROOT.certificate, RUN)


def peers(path: Path, **compared: Holder) -> Peers:
    return Peers(
        path / "peers.json", {n: fingerprint(h.key.public_key()) for n, h in compared.items()}
    )


def test_compared_fingerprints_admit_those_people_and_nobody_else(tmp_path: Path) -> None:
    given = [credential("ada", ADA), credential("ben", BEN, b"b" * 32)]
    known = peers(tmp_path, ben=BEN).check(given, ROOT.certificate, RUN, "ada")
    assert known == {"ada": b"k" * 32, "ben": b"b" * 32}
    assert not (tmp_path / "peers.json").exists()
    with pytest.raises(RefusedError, match="'eve' is not among"):
        peers(tmp_path, ben=BEN).check(
            [*given, credential("eve", EVE)], ROOT.certificate, RUN, "ada"
        )
    with pytest.raises(RefusedError, match="ben has another key"):
        peers(tmp_path, ben=EVE).check(given, ROOT.certificate, RUN, "ada")


def test_without_them_the_first_key_that_is_seen_stays(tmp_path: Path) -> None:
    """A coordinator that forges a key later is noticed; one that always did is not."""
    ben = [credential("ben", BEN)]
    peers(tmp_path).check(ben, ROOT.certificate, RUN, "ada")
    peers(tmp_path).check([*ben, credential("eve", EVE)], ROOT.certificate, RUN, "ada")
    assert peers(tmp_path).known.keys() == {"ben", "eve"}
    forged = [credential("ben", certified("ben", ROOT))]
    with pytest.raises(RefusedError, match=r"ben has another key.*peers\.json"):
        peers(tmp_path).check(forged, ROOT.certificate, RUN, "ada")


@pytest.mark.parametrize("text", ["[]", '{"ben": 1}', "{"])
def test_damaged_pins_are_not_forgotten(tmp_path: Path, text: str) -> None:
    (tmp_path / "peers.json").write_text(text)
    with pytest.raises(DamageError):
        peers(tmp_path).check([credential("ben", BEN)], ROOT.certificate, RUN, "ada")
