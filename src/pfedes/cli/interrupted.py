"""Ctrl-C and a polite kill, with a word on how to go on."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pfedes.__main__ import leave

STOPPING = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):  # noqa: N818 (it is no error)
    """The user stopped the command; the message says what that means."""


@contextmanager
def interruptible() -> Iterator[None]:
    """The first signal becomes a KeyboardInterrupt; a second one waits for nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are not ours to handle
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for kind in STOPPING:
            signal.signal(kind, leave)
        raise KeyboardInterrupt

    before = {kind: signal.signal(kind, stop) for kind in STOPPING}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
