"""The coordinator's session with FLARE's server."""

import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from pfedes.config import Config
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.flare_config import write_session
from pfedes.deploy.hardening.install import harden
from pfedes.deploy.names import ADMIN


def open_session(layout: Layout, config: Config, timeout: float) -> Session:
    """Opens a session with the server; raises what FLARE raises if it does not answer in time.

    Only certificates and a key come from the federation's directory. FLARE's settings, which may
    name classes, are written again.
    """
    harden()
    place = TemporaryDirectory(prefix="pfedes-")
    try:
        write_session(Path(place.name), layout.admin / "startup", config)
        with _hushed():
            session = new_secure_session(ADMIN, place.name, timeout=timeout)
    except BaseException:
        place.cleanup()
        raise
    weakref.finalize(session, place.cleanup)
    return session


def connected(session: Session) -> dict[str, str]:
    """The participants connected to the server, each with the token of its session."""
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
