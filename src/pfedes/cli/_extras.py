"""What must be installed besides pfedes itself."""

from importlib.util import find_spec

from pfedes.deploy.hardening.version import check_version
from pfedes.errors import ConfigError


def check_extra() -> None:
    """Raises a ConfigError unless the extra 'flare' is there, in a version that is known."""
    if find_spec("nvflare") is None:
        raise ConfigError(
            "federations across machines need the extra 'flare': pip install 'pfedes[flare]'"
        )
    check_version()
