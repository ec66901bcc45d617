"""Which trackers follow a run, by name."""

from collections.abc import Iterable, Sequence

from pfedes.errors import ConfigError, unknown
from pfedes.federation.listener import Listener
from pfedes.imports import imported, is_own

KNOWN = ("tensorboard", "wandb")


def trackers(names: str | Iterable[str]) -> Sequence[Listener]:
    """A tracker for each name: a built-in one, or `module:Class` of your own.

    A ConfigError says what is not installed, not known, or no listener.
    """
    chosen = [names] if isinstance(names, str) else list(names)
    return [_tracker(name) for name in dict.fromkeys(chosen)]


def _tracker(name: str) -> Listener:
    try:
        if name == "tensorboard":
            from pfedes.track.tensorboard import TensorBoardTracker

            return TensorBoardTracker()
        if name == "wandb":
            from pfedes.track.wandb import WandbTracker

            return WandbTracker()
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--track {name} needs {error.name}: pip install 'pfedes[{name}]'"
        ) from None
    if not is_own(name):
        raise ConfigError(
            unknown("tracker", name, KNOWN) + "; one of your own is named 'module:Class'"
        )
    kind = imported("tracker", name)
    if not (isinstance(kind, type) and issubclass(kind, Listener)):
        raise ConfigError(f"tracker {name!r} is not a subclass of pfedes.Listener")
    return kind()
