"""Keeps expelled participants out of FLARE's server, which knows no list of revoked certificates.

Installed in the server's process before FLARE starts, it looks at the list (`revocation`) at every
handshake, at every registration, at every message that passes the server, and twice a second at the
connections that are open.
"""

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.fuel.f3.cellnet.core_cell import make_reply
from nvflare.fuel.f3.cellnet.defs import IdentityChallengeKey
from nvflare.fuel.f3.cellnet.defs import ReturnCode as CellReturnCode
from nvflare.fuel.f3.drivers.socket_conn import ConnectionHandler
from nvflare.fuel.f3.drivers.tcp_driver import TcpStreamServer
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.fed.server.client_manager import ClientManager
from nvflare.private.fed.server.fed_server import FederatedServer

from pfedes.deploy.certificates import Certificate, parse_certificate
from pfedes.deploy.revocation import Revocations, read_revocations
from pfedes.errors import PfedesError

log = logging.getLogger(__name__)

LOOK = 0.5  # seconds between two looks at open connections
HANDSHAKE = 20.0  # seconds for a handshake
REVOKED = "this kit was revoked"


class Guard:
    """The list of the expelled, and the connections that are open."""

    def __init__(self, file: Path) -> None:
        """A list that cannot be read is an error here; later the last one that could be counts."""
        self._file = file
        self._stamp: tuple[int, int] | None = None
        self._revoked = read_revocations(file)
        self._reading = threading.Lock()
        self._open: dict[socket.socket, Certificate] = {}
        self._servers: list[Any] = []

    @property
    def revoked(self) -> Revocations:
        """The list as it is now."""
        with self._reading:
            try:
                found = self._file.stat()
                stamp = (found.st_mtime_ns, found.st_ino)
            except FileNotFoundError:
                return self._revoked
            if stamp != self._stamp:
                try:
                    self._revoked, self._stamp = read_revocations(self._file), stamp
                except PfedesError as error:
                    log.error("%s; the previous list stays in force", error)
            return self._revoked

    @contextmanager
    def connected(self, connection: socket.socket) -> Iterator[bool]:
        """Whether a connection is accepted; an accepted one is watched until it ends."""
        certificate = _shake_hands(connection)
        if certificate is None:  # a process of this machine, on a line without TLS
            yield True
            return
        # First added to the watched connections, so that a later revocation is noticed.
        self._open[connection] = certificate
        try:
            if refused := self.revoked.refuses(certificate):
                log.warning("a connection with %s's revoked kit is refused", certificate.name)
            yield not refused
        finally:
            self._open.pop(connection, None)

    def refuses(self, proof: Any) -> bool:
        """Whether the certificate of a registration was revoked."""
        try:
            first = proof if isinstance(proof, bytes) else str(proof).encode()
            return self.revoked.refuses(parse_certificate(first))
        except ValueError:
            return False  # FLARE turns it away

    def watch_server(self, server: Any) -> None:
        self._servers.append(server)

    def watch(self) -> None:
        """Ends open connections of participants that were revoked meanwhile. Never returns."""
        while True:
            time.sleep(LOOK)
            try:
                self.look()
            except Exception:  # FLARE's objects may be half made, or gone
                log.exception("cannot inspect the open connections")

    def look(self) -> None:
        revoked = self.revoked
        for connection, certificate in list(self._open.items()):
            if revoked.refuses(certificate):
                log.warning("the connection of %s is ended: %s", certificate.name, REVOKED)
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for server in self._servers:
            for token, client in list(server.client_manager.get_clients().items()):
                if client.name in revoked.names:
                    server.logout_client(token)


def install(file: Path) -> None:
    """Puts a guard into FLARE's classes, in the process that is going to be the server."""
    guard = Guard(file)
    _guard_connections(guard)
    _guard_registration(guard)
    _guard_messages(guard)
    threading.Thread(target=guard.watch, daemon=True).start()


def _guard_connections(guard: Guard) -> None:
    listen, handle = TcpStreamServer.__init__, ConnectionHandler.handle

    def listening(self: Any, *args: Any, **kwargs: Any) -> None:
        listen(self, *args, **kwargs)
        if isinstance(self.socket, ssl.SSLSocket):
            # Otherwise a silent connection would keep all others from connecting.
            setattr(self.socket, "do_handshake_on_connect", False)  # noqa: B010 - unknown to mypy

    def handling(self: Any) -> None:
        try:
            with guard.connected(self.request) as may_come_in:
                if may_come_in:
                    handle(self)
        except OSError as error:
            log.info("a connection failed: %s", error)

    TcpStreamServer.__init__ = listening
    ConnectionHandler.handle = handling


def _shake_hands(connection: socket.socket) -> Certificate | None:
    """The certificate of the other side; None without TLS. Raises OSError if there is none."""
    if not isinstance(connection, ssl.SSLSocket):
        return None
    connection.settimeout(HANDSHAKE)
    connection.do_handshake()
    connection.settimeout(None)
    certificate = connection.getpeercert(binary_form=True)
    if certificate is None:
        raise OSError("it shows no certificate")
    try:
        return parse_certificate(certificate)
    except ValueError as error:
        raise OSError(f"its certificate cannot be read: {error}") from None


def _guard_registration(guard: Guard) -> None:
    """The certificate of a registration need not be that of the connection it comes through."""
    authenticate, heartbeat = ClientManager.authenticated_client, ClientManager.heartbeat

    def authenticating(self: Any, request: Any, fl_ctx: Any, client_type: Any) -> Any:
        shown = request.payload if isinstance(request.payload, dict) else {}
        if guard.refuses(shown.get(IdentityChallengeKey.CERT)):
            fl_ctx.set_prop(FLContextKey.UNAUTHENTICATED, REVOKED, sticky=False)
            return None
        return authenticate(self, request, fl_ctx, client_type)

    def beating(self: Any, token: Any, client_name: Any, client_fqcn: Any, fl_ctx: Any) -> Any:
        if client_name in guard.revoked.names:
            fl_ctx.set_prop(FLContextKey.UNAUTHENTICATED, REVOKED, sticky=False)
            return False
        return heartbeat(self, token, client_name, client_fqcn, fl_ctx)

    ClientManager.authenticated_client = authenticating
    ClientManager.heartbeat = beating


def _guard_messages(guard: Guard) -> None:
    make: Callable[..., None] = FederatedServer.__init__
    validate = FederatedServer._validate_auth_headers

    def making(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        guard.watch_server(self)

    def validating(self: Any, message: Any) -> Any:
        if message.get_header(CellMessageHeaderKeys.CLIENT_NAME) in guard.revoked.names:
            return make_reply(rc=CellReturnCode.UNAUTHENTICATED, error=REVOKED)
        return validate(self, message)

    FederatedServer.__init__ = making
    FederatedServer._validate_auth_headers = validating
