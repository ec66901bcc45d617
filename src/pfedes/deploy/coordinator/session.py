"""The coordinator's line to FLARE's server."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO

from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.hardening.install import harden
from pfedes.deploy.names import ADMIN


def open_session(layout: Layout, timeout: float) -> Session:
    """A session with the server; whatever FLARE raises if it does not answer in time."""
    harden()
    with _hushed():
        return new_secure_session(ADMIN, str(layout.admin), timeout=timeout)


def connected(session: Session) -> dict[str, str]:
    """Who is connected to the server, each with the token of its session."""
    answer = session.do_command("check_status server")
    for part in answer["data"]:
        header, *sites = part.get("rows", [[]])
        if "TOKEN" in header:
            name, token = header.index("CLIENT"), header.index("TOKEN")
            return {site[name]: site[token] for site in sites}
    return {}


@contextmanager
def _hushed() -> Iterator[None]:
    """FLARE prints that it connects, and logs every try that fails under names without a parent."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(StringIO()):
            yield
    finally:
        logging.disable(before)
