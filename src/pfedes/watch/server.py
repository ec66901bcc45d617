"""Serves the page on this machine's loopback address, to whoever has the token."""

import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from pfedes.errors import ConfigError
from pfedes.watch.pages import make_app
from pfedes.watch.watcher import Watcher

LOOPBACK = "127.0.0.1"


class Server:
    """A page over some directories. Port 0 takes any that is free."""

    def __init__(self, directories: Sequence[Path], port: int = 0) -> None:
        for directory in directories:
            if not directory.is_dir():
                raise ConfigError(f"{directory} is not a directory: name one that contains runs")
        self._socket = _bound(port)
        port = self._socket.getsockname()[1]
        token = secrets.token_urlsafe(24)
        self.address = f"http://{LOOPBACK}:{port}/{token}/"
        config = uvicorn.Config(
            make_app(Watcher(directories), token, port),
            log_level="critical",  # addresses have the token in them: nothing of them is logged
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,  # an open page never ends by itself
        )
        self._server = uvicorn.Server(config)

    def run(self, ready: Callable[[str], None]) -> None:
        """Serves until the process is told to end; `ready` hears the address."""
        ready(self.address)
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ends `run` from another thread."""
        self._server.should_exit = True


def _bound(port: int) -> socket.socket:
    """A socket that listens: whoever gets the address can connect at once."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((LOOPBACK, port))
    except OSError as error:
        found.close()
        raise ConfigError(f"--port {port} cannot be used: {error.strerror}") from None
    found.listen()
    return found
