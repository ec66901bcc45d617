"""Ctrl-C, SIGTERM and a closed terminal end a command with a line on how to continue."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pfedes.fleet.process import leave, stopping


class Interrupted(Exception):  # noqa: N818 (it is no error)
    """The user stopped the command; the message says what that means."""


@contextmanager
def interruptible() -> Iterator[None]:
    """The first signal becomes a KeyboardInterrupt that names it; a second waits for nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not ours to handle
        return

    kinds = stopping()

    def stop(number: int, frame: FrameType | None) -> None:
        for kind in kinds:
            signal.signal(kind, leave)
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {kind: signal.signal(kind, stop) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
