"""A federation's directory from a stranger: to look at it runs none of what lies in it."""

import json
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from nvflare.apis.workspace import Workspace
from nvflare.fuel.hci.client.config import secure_load_admin_config

from commands import command, complaint
from pfedes import ConfigError
from pfedes.config import stored_config
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.session import open_session
from pfedes.deploy.names import ADMIN
from pfedes.errors import DamageError
from pfedes.watch.coordinator import federation_view
from pfedes.watch.watcher import Watcher

YEAR = timedelta(days=365)


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What it names is there: a module, a command, and a file; each leaves a mark if it runs."""
    home = tmp_path / "federation"
    (home / "admin" / "startup").mkdir(parents=True)
    (home / "admin" / "local" / "custom").mkdir(parents=True)
    terms = '[method]\nname = "trap:Method"\n[federation]\nparticipants = ["ada"]\n'
    (home / "federation.toml").write_text(terms + 'classes = ["a", "b"]\nhost = "localhost"\n')
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    mark = {"path": "subprocess.Popen", "args": {"args": ["touch", str(tmp_path / "ran")]}}
    sessions = {"host": "localhost", "port": 1, "upload_dir": "up", "download_dir": "down"}
    tree = {"format_version": 1, "admin": sessions, "handlers": [mark]}
    for name in ("startup/fed_admin.json", "local/resources.json", "local/resources.json.default"):
        (home / "admin" / name).write_text(json.dumps(tree))
    key = ec.generate_private_key(ec.SECP256R1())
    whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ADMIN)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(whose, whose, key.public_key(), 1, now, now + YEAR)
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for file, data in (
        ("client.key", private),
        ("client.crt", certificate),
        ("rootCA.pem", certificate),
    ):
        (home / "admin" / "startup" / file).write_bytes(data)
    return home


def assert_nothing_ran(trap: Path) -> None:
    assert "trap" not in sys.modules
    assert not (trap.parent / "imported").exists()
    assert not (trap.parent / "ran").exists()


def test_status_runs_nothing_of_a_strangers(trap: Path) -> None:
    done = command("status", str(trap), "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["server"], [person["name"] for person in shown["people"]]) == (False, ["ada"])
    assert_nothing_ran(trap)


def test_watch_runs_nothing_of_a_strangers(trap: Path) -> None:
    view = federation_view(trap)
    assert view.server == "does not answer"
    assert_nothing_ran(trap)


def test_a_session_with_the_server_runs_nothing_of_a_strangers(
    trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `pfedes serve` is at work, FLARE is set up by our own templates."""

    def beginning(name: str, place: str, timeout: float) -> None:
        found = secure_load_admin_config(Workspace(root_dir=place))
        assert (found.handlers, found.get_admin_config()["host"]) == ([], "localhost")
        raise ConnectionError("nobody is there")

    monkeypatch.setattr("pfedes.deploy.coordinator.session.new_secure_session", beginning)
    layout = Layout(trap)
    assert not layout.is_served()
    with layout.served():
        assert layout.is_served()
        with pytest.raises(ConnectionError):
            open_session(layout, stored_config(layout.config), 0.1)
    assert not layout.is_served()
    assert_nothing_ran(trap)
    assert not (trap / "admin" / "down").exists()
    layout.config.write_text(layout.config.read_text().replace("localhost", "a b"))
    with pytest.raises(ConfigError):
        open_session(layout, stored_config(layout.config), 0.1)


@pytest.mark.parametrize("content", ["[]", '{"ada": {"count": "x"}}', "[1, 2]", "{", "9" * 400])
def test_what_is_damaged_is_named_and_leaves_the_others_alone(trap: Path, content: str) -> None:
    whole = trap.parent / "whole"
    shutil.copytree(trap, whole)
    names = {name: trap / f"{name}.json" for name in ("strikes", "refused", "revoked")}
    for file in names.values():
        file.write_text(content)
        line = complaint(command("status", str(trap)))
        assert f"{file} is damaged" in line
        file.unlink()
    names["strikes"].write_text(content)
    watcher = Watcher([trap, whole])
    watcher.read_runs()
    watcher.ask_federations()
    people = {entry.federation: entry.people for entry in watcher.entries.values()}
    damaged, other = people[trap], people[whole]
    assert damaged is not None
    assert "is damaged" in " ".join(damaged.warnings)
    assert other is not None
    assert [cells[0][0] for cells in other.people] == ["ada"]


@pytest.mark.parametrize("file", ["presence", "awaited"])
def test_damaged_files_between_the_servers_processes_are_named(trap: Path, file: str) -> None:
    (trap / f"{file}.json").write_text('{"round": "x"}')
    with pytest.raises(DamageError, match=f"{file}.json is damaged"):
        getattr(Layout(trap), file)()


def test_nothing_that_is_shown_commands_the_terminal(trap: Path) -> None:
    (trap / "refused.json").write_text(json.dumps({"ada": "\x1b]0;owned\x07"}))
    done = command("status", str(trap))
    assert "?]0;owned?" in done.stdout
