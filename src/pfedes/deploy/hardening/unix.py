"""The connection between FLARE's parent process and its job processes: a Unix socket.

FLARE's own is a TCP port on the loopback interface, in clear and without authentication: any user
of the machine can connect to it and pose as a job. With mutual TLS every certificate of the
federation's authority would be admitted. Here the socket lies in a directory that only its owner
can enter, and the kernel reports the user of the other end, which must be the same.
"""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any
from urllib.parse import quote, unquote

from nvflare.fuel.f3.drivers.base_driver import BaseDriver
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo
from nvflare.fuel.f3.drivers.driver_params import DriverCap, DriverParams
from nvflare.fuel.f3.drivers.socket_conn import ConnectionHandler, SocketConnection

from pfedes.deploy.names import INNER

SCHEME = "unix"
SOCKET = "inner.sock"
LONGEST = 100  # bytes of a path that every kernel accepts


class UnixDriver(BaseDriver):  # type: ignore[misc]  # FLARE has no types
    """Listens at a path, or connects to it."""

    def __init__(self) -> None:
        super().__init__()
        self._server: _Server | None = None

    @staticmethod
    def supported_transports() -> list[str]:
        return [SCHEME]

    @staticmethod
    def capabilities() -> dict[str, Any]:
        return {DriverCap.SEND_HEARTBEAT.value: True, DriverCap.SUPPORT_SSL.value: False}

    @staticmethod
    def get_urls(scheme: str, resources: dict[str, Any]) -> tuple[str, str]:
        """The address to connect to and the one to listen at, which are the same."""
        url = f"{scheme}://here{quote(str(Path(os.environ[INNER]).absolute() / SOCKET))}"
        return url, url

    def listen(self, connector: ConnectorInfo) -> None:
        self.connector = connector
        path = _path(connector)
        path.unlink(missing_ok=True)  # of a process that was killed
        with _reachable(path) as address:
            self._server = _Server(address, self, connector)
        path.chmod(0o600)
        self._server.serve_forever()

    def connect(self, connector: ConnectorInfo) -> None:
        self.connector = connector
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            with _reachable(_path(connector)) as address:
                connected.connect(address)
            if not is_same_user(connected):
                raise PermissionError(f"{_path(connector)} belongs to another user")
            connection = SocketConnection(connected, connector)
            self.add_connection(connection)
            connection.read_loop()
            self.close_connection(connection)

    def shutdown(self) -> None:
        self.close_all()
        if self._server is not None:  # a process that only connected leaves the socket to its owner
            self._server.shutdown()
            self._server.server_close()
            with suppress(OSError):
                _path(self._server.connector).unlink(missing_ok=True)


class _Server(ThreadingUnixStreamServer):
    """One thread for each job's process."""

    daemon_threads = True
    ssl_context = None  # as FLARE's handler asks for it

    def __init__(self, address: str, driver: UnixDriver, connector: ConnectorInfo) -> None:
        self.driver = driver
        self.connector = connector
        super().__init__(address, ConnectionHandler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return is_same_user(request)


def is_same_user(connected: socket.socket) -> bool:
    """Whether the process at the other end runs as this user.

    Where the kernel does not say, the directory's mode has to suffice.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    size = struct.calcsize("3i")
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.geteuid())


def _path(connector: ConnectorInfo) -> Path:
    return Path(unquote(connector.params[DriverParams.PATH.value]))


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """The path as an address, for which kernels have about a hundred bytes."""
    if len(os.fsencode(path)) <= LONGEST or not Path("/proc/self/fd").is_dir():
        yield str(path)
        return
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{path.name}"
    finally:
        os.close(handle)
