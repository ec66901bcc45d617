"""Names that FLARE uses in addresses and in the names of its endpoints."""

import re

from pfedes.core.names import check_name
from pfedes.errors import ConfigError

SERVER = "server"  # what FLARE calls ours
ADMIN = "coordinator@pfedes.local"  # on the certificate by which jobs are submitted
INNER = "PFEDES_INNER"  # the variable that names the directory in which a process meets its jobs

_SITE = re.compile("[A-Za-z0-9_-]+")
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def check_host(host: str) -> None:
    """Refuses what is no name of a host: it becomes part of an address."""
    if not _HOST.fullmatch(host):
        raise ConfigError(
            f"federation.host = {host!r:.60} must be a name or address by which "
            "participants reach the coordinator"
        )


def check_site(name: str, host: str) -> None:
    """Refuses names that FLARE does not accept, and the name of the server."""
    ill_formed = not _SITE.fullmatch(check_name(name))
    if ill_formed or name in (SERVER, host):
        raise ConfigError(
            f"{name!r} cannot be a participant's name: use letters, digits, '-' and '_', "
            "and neither 'server' nor the name of the host"
        )
