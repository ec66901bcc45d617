"""What a kit may hold. It comes from another party, and nothing in it may run."""

import base64
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from commands import refused
from pfedes import ConfigError, StoreError, configure
from pfedes.config.participant import read_participant
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.serve import prepare
from pfedes.deploy.flare_config import write_site
from pfedes.deploy.kit import AUTHORITY, CERTIFICATE, KEY, LARGEST, TERMS, read_kit
from pfedes.deploy.rehearsal import federation_of, write_participant
from pfedes.errors import DiskError


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kits of ada and ben, of one federation."""
    layout = Layout(tmp_path_factory.mktemp("kits") / "federation")
    prepare(layout, federation_of(("ada", "ben"), 1, 8002))
    return layout.kits


@pytest.fixture
def kit(kits: Path, tmp_path: Path) -> Path:
    place = tmp_path / "kit"
    shutil.copytree(kits / "ada", place)
    return place


def component(marker: Path) -> dict[str, Any]:
    part = {"id": "x", "path": "subprocess.Popen", "args": {"args": ["touch", str(marker)]}}
    return {"format_version": 2, "components": [part]}


def handler(marker: Path) -> dict[str, Any]:
    run = {"()": "subprocess.Popen", "args": ["touch", str(marker)]}
    return {"version": 1, "handlers": {"x": run}, "root": {"handlers": ["x"]}}


def put(kit: Path, name: str, text: str) -> None:
    (kit / name).parent.mkdir(exist_ok=True)
    (kit / name).write_text(text)


ATTACKS: dict[str, Callable[[Path, Path], None]] = {
    "a component": lambda kit, marker: put(
        kit, "local/resources.json.default", json.dumps(component(marker))
    ),
    "a log handler": lambda kit, marker: put(
        kit, "local/log_config.json.default", json.dumps(handler(marker))
    ),
    "a module": lambda kit, marker: put(
        kit, "local/custom/pfedes.py", f"from pathlib import Path\nPath({str(marker)!r}).touch()\n"
    ),
    "a file": lambda kit, marker: put(kit, "fed_client.json", "{}"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_kit_that_brings_more_is_refused_by_name(kit: Path, tmp_path: Path, attack: str) -> None:
    marker = tmp_path / "ran"
    (kit / "local").mkdir()  # for what lies deeper
    (kit / "local" / "custom").mkdir()
    ATTACKS[attack](kit, marker)
    participant = write_participant(tmp_path / "ada", "ada", 0, 2)
    line = refused("join", str(kit), str(participant))
    assert "is not part of a kit" in line
    assert str(kit / "fed_client.json" if attack == "a file" else kit / "local") in line
    assert not marker.exists()
    assert not (tmp_path / "ada" / "state").exists()


def test_only_plain_files_of_a_fair_size(kit: Path, tmp_path: Path) -> None:
    terms = (kit / TERMS).read_bytes()
    (kit / TERMS).unlink()
    with pytest.raises(
        StoreError, match=r"is not a kit of a federation: federation\.toml is missing"
    ):
        read_kit(kit)
    secret = tmp_path / "secret.toml"
    secret.write_bytes(terms)
    (kit / TERMS).symlink_to(secret)
    with pytest.raises(StoreError, match=r"federation\.toml must be a file, not a link"):
        read_kit(kit)
    (kit / TERMS).unlink()
    os.mkfifo(kit / TERMS)
    with pytest.raises(StoreError, match=r"federation\.toml must be a file"):
        read_kit(kit)
    (kit / TERMS).unlink()
    (kit / TERMS).write_bytes(terms + b"#" * (LARGEST[TERMS] - len(terms)))
    read_kit(kit)
    with (kit / TERMS).open("ab") as file:
        file.write(b"#")
    with pytest.raises(StoreError, match=r"federation\.toml is too large: 1,048,576 bytes"):
        read_kit(kit)
    with pytest.raises(DiskError, match="cannot read the kit"):
        read_kit(tmp_path / "nowhere")


def test_certificates_and_keys_belong_together(kit: Path, kits: Path, tmp_path: Path) -> None:
    shutil.copy(kits / "ben" / KEY, kit / KEY)
    with pytest.raises(StoreError, match=r"participant\.key does not belong to the kit's"):
        read_kit(kit)
    (kit / KEY).write_text("nonsense")
    with pytest.raises(StoreError, match=r"participant\.key is not a private key"):
        read_kit(kit)
    (kit / KEY).unlink()
    assert read_kit(kit).key is None
    (kit / CERTIFICATE).write_text("nonsense")
    with pytest.raises(StoreError, match=r"participant\.crt must be one certificate"):
        read_kit(kit)
    pem = (kits / "ada" / AUTHORITY).read_bytes()
    odd = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    kind = bytes.fromhex("2a864886f70d010101")  # of its key: RSA; made another
    odd = odd.replace(kind, kind[:-1] + b"\x63")
    armour = b"-----BEGIN CERTIFICATE-----\n%s-----END CERTIFICATE-----\n"
    (kit / AUTHORITY).write_bytes(armour % base64.encodebytes(odd))
    with pytest.raises(StoreError, match=r"authority\.crt must be one certificate"):
        read_kit(kit)
    (kit / AUTHORITY).write_bytes(pem)
    other = Layout(tmp_path / "other")
    prepare(other, federation_of(("ada",), 1, 8002))
    shutil.copy(other.kits / "ada" / CERTIFICATE, kit / CERTIFICATE)
    with pytest.raises(StoreError, match="was not issued by the authority"):
        read_kit(kit)
    both = (kits / "ada" / AUTHORITY).read_bytes() + (other.kits / "ada" / AUTHORITY).read_bytes()
    (kit / AUTHORITY).write_bytes(both)
    with pytest.raises(StoreError, match=r"authority\.crt must be one certificate"):
        read_kit(kit)


def test_terms_name_nothing_that_is_imported_or_read(
    kit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, value, what in (
        ("method", {"name": "evil:Method"}, "method 'evil:Method' is not built in"),
        ("method", "evil:Method", "method 'evil:Method' is not built in"),
        ("method", {"name": ["pfedes"]}, r"method \['pfedes'\] is not built in"),
        ("compare", {"evil:Method": {"x": 1}}, "have no section 'compare'"),
        ("participants", ["/etc/passwd"], "have no section 'participants'"),
    ):
        tree = {"federation": {"classes": ["a", "b"]}, name: value}
        (kit / TERMS).write_text(toml(tree))
        with pytest.raises(ConfigError, match=what):
            read_kit(kit)
    for host in ("h:1/?secure=false&x=", "a b", "", "localhost\n", "../x"):
        (kit / TERMS).write_text(toml({"federation": {"host": host, "classes": ["a", "b"]}}))
        with pytest.raises(ConfigError, match=r"federation\.host = .* must be a name"):
            read_kit(kit)
    assert not Path("ran").exists()


def toml(tree: dict[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(tree)


def test_a_workspace_comes_from_templates(kit: Path, tmp_path: Path) -> None:
    """Nothing of an earlier one stays, and nobody else can read it."""
    participant = read_participant(write_participant(tmp_path / "ada", "ada", 0, 2))
    read = read_kit(kit)
    assert read.key is not None
    shutil.rmtree(kit)  # what was read is what counts
    place = tmp_path / "site"
    (place / "local" / "custom").mkdir(parents=True)
    (place / "local" / "custom" / "evil.py").touch()
    (place / "local" / "job_resources.json").write_text("{}")
    write_site(place, read, read.key, participant)
    files = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert files == {
        "startup/rootCA.pem", "startup/client.crt", "startup/client.key",
        "startup/fed_client.json", "local/resources.json", "local/privacy.json",
        "local/authorization.json", "local/log_config.json", "local/comm_config.json",
        "local/participant.json", "local/federation.toml",
    }  # fmt: skip
    for path in [place, *place.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert configure(place / "local" / "federation.toml") == read.terms
