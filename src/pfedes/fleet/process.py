"""Processes: how they start, what ends them, how they use memory.

Nothing heavy is imported here, so that a process that only starts others stays small.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def stopping() -> list[signal.Signals]:
    """The signals that end a command: Ctrl-C, a polite kill, and a terminal that is closed.

    `nohup` has the last one ignored, and it stays so.
    """
    kinds = [signal.SIGINT, signal.SIGTERM]
    survives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return kinds if survives else [*kinds, signal.SIGHUP]


def leave(number: int, frame: FrameType | None) -> None:
    """Ends the process at once.

    Files are replaced atomically and worker processes end with their parent: nothing is lost.
    """
    with suppress(OSError):  # the terminal may be closed
        os.write(2, b"pfedes: stopped\n")
    os._exit(INTERRUPTED)


LEASH = "PFEDES_LEASH"
"""In the environment of a command: the descriptor whose closing ends it, see `end_with`."""

_held: dict[str, str] = {}  # the leash that this command was started with, if any


def begin() -> None:
    """Called first by every command: it then ends in good order on a signal or with its parent."""
    for kind in stopping():
        signal.signal(kind, leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stopping())  # see `again`
    if leash := os.environ.pop(LEASH, ""):  # for this process, not for those that it starts
        _held[LEASH] = leash
        end_with(int(leash))


def again(*kept: int, **environment: str) -> NoReturn:
    """Restarts this command in the same process, without the modules imported so far.

    The descriptors in `kept` stay open, and locks on them held. Signals wait until it is ready.
    """
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping())
    words = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, words, {**os.environ, **_held, **environment})


def end_with(descriptor: int, last: Callable[[], None] = lambda: None) -> None:
    """Ends this process when the other end of a pipe closes, after doing one last thing.

    The parent holds that end and never writes. The system closes it when the parent is gone,
    however it went.
    """

    def watch() -> None:
        os.read(descriptor, 1)
        last()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end_without_parent(parent: int) -> None:
    """The same for a process without a pipe to its parent: it looks twice a second.

    Args:
        parent: Process id of the parent, as the parent told it. A process that asks the system
            may ask too late: if its parent died while it started, another has adopted it.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def python(*arguments: str) -> list[str]:
    """A command line of this Python that does not import from the present directory."""
    return [sys.executable, "-P", *arguments]


def same_imports() -> dict[str, str]:
    """The environment of a process that finds the modules this one finds, and no others."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of <malloc.h>


def keep_freed_memory() -> None:
    """Tells the allocator not to return less than 1 GB at a time to the system.

    Every step frees what the next one asks for again. By default, the larger blocks go back and
    forth: the system hands out pages filled with zeros, at the cost of a tenth of the training.
    Allocators other than glibc's are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, 2**30)
        mallopt(_MMAP_THRESHOLD, 2**30) or mallopt(_MMAP_THRESHOLD, 2**25)  # older ones' greatest
