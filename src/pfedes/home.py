"""Paths as users write them, `~` standing for a home."""

from pathlib import Path

from pfedes.errors import ConfigError


def at_home(path: Path | str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{str(path)!r}: nobody of that name has a home here") from None
