"""What a configuration names of the user's own, as `module:name`."""

from importlib import import_module
from typing import Any

from pfedes.errors import ConfigError


def imported(kind: str, name: str) -> Any:
    """What `module:name` stands for.

    A configuration may come from anywhere, so only what you installed, or put on PYTHONPATH, is
    imported; never a file that merely lies in the present directory.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # importing runs the module, which may raise anything
        raise ConfigError(f"{kind} {name!r} cannot be imported: {said(error)}") from None


def said(error: Exception) -> str:
    """What foreign code has to say, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
