"""Who was expelled does not get through the server's door, nor stay inside."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from cryptography import x509
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.defs import IdentityChallengeKey
from nvflare.fuel.f3.drivers.socket_conn import ConnectionHandler
from nvflare.fuel.f3.drivers.tcp_driver import TcpStreamServer
from nvflare.lighter.utils import (
    Identity,
    generate_cert,
    generate_keys,
    serialize_cert,
    serialize_pri_key,
)
from nvflare.private.defs import new_cell_message
from nvflare.private.fed.server.client_manager import ClientManager

from flaring import eventually
from pfedes.deploy.certificates import ending, parse_certificate, read_certificate
from pfedes.deploy.guard import Guard, _guard_connections, _guard_registration
from pfedes.deploy.participant.keys import Authority, reissue
from pfedes.deploy.revocation import Revocations, Revoked, read_revocations
from pfedes.errors import DamageError

PATIENCE = 30.0


class Ca:
    """An authority, and what it signed."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.key, public = generate_keys()
        self.root = generate_cert(
            Identity("federation"), Identity("federation"), self.key, public, ca=True
        )
        (place / "ca.crt").write_bytes(serialize_cert(self.root))

    def issue(self, file: str, name: str) -> Path:
        key, public = generate_keys()
        made = generate_cert(Identity(name), Identity("federation"), self.key, public)
        (self.place / f"{file}.key").write_bytes(serialize_pri_key(key))
        path = self.place / f"{file}.crt"
        path.write_bytes(serialize_cert(made))
        return path


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Ca:
    ca = Ca(tmp_path_factory.mktemp("authority"))
    for name in ("server", "ada", "ben"):
        ca.issue(name, name)
    return ca


@dataclass
class Connector:
    params: dict[str, Any]


class Driver:
    """Counts who is in."""

    def __init__(self) -> None:
        self.came: list[str] = []

    def add_connection(self, connection: Any) -> None:
        self.came.append(connection.get_conn_properties()["peer_cn"])

    def close_connection(self, connection: Any) -> None:
        connection.close()


@dataclass
class Door:
    """FLARE's listener, with a guard."""

    ca: Ca
    list: Path
    guard: Guard
    driver: Driver
    port: int

    def enter(self, who: str) -> ssl.SSLSocket:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.ca.place / "ca.crt")
        context.load_cert_chain(self.ca.place / f"{who}.crt", self.ca.place / f"{who}.key")
        connected = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        return context.wrap_socket(connected)

    def revoke(self, name: str, *keys: str) -> None:
        read_revocations(self.list).revoke(name, set(keys)).write(self.list)


@pytest.fixture
def door(ca: Ca, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    for kind, method in ((TcpStreamServer, "__init__"), (ConnectionHandler, "handle")):
        monkeypatch.setattr(kind, method, getattr(kind, method))  # put back in the end
    guard, driver = Guard(tmp_path / "revoked.json"), Driver()
    _guard_connections(guard)
    files = {"ca_cert": "ca.crt", "server_cert": "server.crt", "server_key": "server.key"}
    params = {key: str(ca.place / file) for key, file in files.items()}
    connector = Connector({"scheme": "stcp", "host": "127.0.0.1", "port": 0, **params})
    server = TcpStreamServer(driver, connector)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    serving.start()
    yield Door(ca, tmp_path / "revoked.json", guard, driver, server.server_address[1])
    server.shutdown()
    server.server_close()


def is_ended(connected: ssl.SSLSocket) -> bool:
    """Whether the other end is gone; it never says anything here."""
    connected.settimeout(PATIENCE)
    try:
        return connected.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def test_a_revoked_certificate_is_refused_and_others_are_not(door: Door) -> None:
    door.revoke("ada")
    with door.enter("ada") as refused, door.enter("ben") as genuine:
        assert is_ended(refused)
        eventually(lambda: door.driver.came, "ben comes in", PATIENCE)
        door.guard.look()
        genuine.settimeout(0.5)
        with pytest.raises(TimeoutError):
            genuine.recv(1)
    assert door.driver.came == ["ben"]


def test_open_connections_of_an_expelled_participant_end(door: Door) -> None:
    with door.enter("ada") as revoked, door.enter("ben") as genuine:
        eventually(lambda: sorted(door.driver.came) == ["ada", "ben"], "both come in", PATIENCE)
        door.guard.look()
        door.revoke("ada")
        door.guard.look()
        assert is_ended(revoked)
        genuine.settimeout(0.5)
        with pytest.raises(TimeoutError):
            genuine.recv(1)


def test_a_silent_connection_does_not_block_others(door: Door) -> None:
    """Before, the listener waited for the first one's handshake forever."""
    with socket.create_connection(("127.0.0.1", door.port)):
        time.sleep(0.2)  # it is the first in the queue
        with door.enter("ben"):
            eventually(lambda: door.driver.came == ["ben"], "ben comes in", PATIENCE)


def test_a_revoked_certificate_registers_nobody(
    ca: Ca, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even through a connection of somebody else's."""
    for method in ("authenticated_client", "heartbeat"):
        monkeypatch.setattr(ClientManager, method, getattr(ClientManager, method))
    asked: list[str] = []

    def authenticate(self: Any, request: Any, fl_ctx: Any, client_type: Any) -> str:
        asked.append(client_type)
        return "a client"

    monkeypatch.setattr(ClientManager, "authenticated_client", authenticate)
    file = tmp_path / "revoked.json"
    Revocations().revoke("ada", set()).write(file)
    _guard_registration(Guard(file))
    manager = ClientManager()

    def register(who: str) -> Any:
        payload = Shareable()
        payload[IdentityChallengeKey.CERT] = (ca.place / f"{who}.crt").read_bytes()
        return manager.authenticated_client(new_cell_message({}, payload), FLContext(), who)

    assert register("ada") is None
    assert register("ben") == "a client"
    assert asked == ["ben"]
    assert manager.heartbeat("token", "ada", "ada", FLContext()) is False
    assert manager.clients == {}
    assert manager.heartbeat("token", "ben", "ben", FLContext()) is True


def test_what_a_revocation_covers(ca: Ca, tmp_path: Path) -> None:
    file = tmp_path / "revoked.json"
    before = read_certificate(ca.place / "ada.crt")
    Revocations().revoke("ada", {before.key_id}).write(file)
    revoked = read_revocations(file)
    assert revoked.names == {"ada"}
    assert revoked.refuses(before)
    assert not revoked.refuses(read_certificate(ca.place / "ben.crt"))
    # Certificates know of seconds only: one of the very second may have been made before.
    assert Revocations({"ada": Revoked(until=before.made)}).refuses(before)

    again = revoked.admit_again("ada")
    assert again.names == set()
    assert again.refuses(before)
    time.sleep(1.1)  # certificates know of seconds only
    assert not again.refuses(read_certificate(ca.issue("ada-again", "ada")))
    # Neither another name nor a later date helps the key that was known.
    old = x509.load_pem_x509_certificate((ca.place / "ada.crt").read_bytes())
    renewed = reissue(Authority(ca.root, ca.key), old, 360)
    assert again.refuses(parse_certificate(renewed))

    for text in ("{", "[]", '{"ada": {}}', '{"ada": {"until": "yesterday"}}'):
        file.write_text(text)
        with pytest.raises(DamageError, match=r"revoked\.json is damaged"):
            read_revocations(file)


def test_a_certificate_is_made_again_for_the_same_holder_and_key(ca: Ca) -> None:
    authority = Authority(ca.root, ca.key)
    old = x509.load_pem_x509_certificate((ca.place / "ada.crt").read_bytes())
    new = x509.load_pem_x509_certificate(reissue(authority, old, 100))
    assert (new.subject, new.issuer, new.public_key()) == (
        old.subject,
        old.issuer,
        old.public_key(),
    )
    assert [e.value for e in new.extensions] == [e.value for e in old.extensions]
    assert new.serial_number != old.serial_number
    assert new.not_valid_after_utc - new.not_valid_before_utc == timedelta(days=100)
    new.verify_directly_issued_by(ca.root)
    # Nobody's certificate outlives the authority's, which itself may be made again.
    longest = x509.load_pem_x509_certificate(reissue(authority, old, 10_000))
    assert longest.not_valid_after_utc == ca.root.not_valid_after_utc
    root = x509.load_pem_x509_certificate(reissue(authority, ca.root, 3600))
    assert root.not_valid_after_utc > ca.root.not_valid_after_utc
    old.verify_directly_issued_by(root)


def test_a_certificate_is_warned_of_in_time() -> None:
    now = datetime.now(UTC)
    assert ending("ada's certificate", now + timedelta(days=31), "renew it") is None
    soon = ending("ada's certificate", now + timedelta(days=12, hours=1), "renew it")
    assert soon is not None
    assert soon.startswith("ada's certificate expires on 20")
    assert soon.endswith(", in 12 days: renew it")
    over = ending("ada's certificate", now - timedelta(days=1), "renew it")
    assert over is not None
    assert over.startswith("ada's certificate expired on 20")
