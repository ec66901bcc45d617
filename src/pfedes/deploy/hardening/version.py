"""The version of FLARE for which the doors were shown to be closed."""

from importlib.metadata import PackageNotFoundError, version

from pfedes.errors import ConfigError

SHOWN_FOR = "2.9.0"


def check_version() -> None:
    """Refuses every other version: it may answer messages that were not examined."""
    try:
        found = version("nvflare")
    except PackageNotFoundError:
        found = "none"
    if found != SHOWN_FOR:
        raise ConfigError(
            f"federations across machines need nvflare {SHOWN_FOR}, for which pfedes was shown to "
            f"be safe; found {found}: pip install nvflare=={SHOWN_FOR}"
        )
