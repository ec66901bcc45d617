"""The `pfedes` command, and `python -m pfedes`."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def main() -> None:
    """Runs the command line: 0 done, 2 wrong input, 130 interrupted."""
    # Before anything that takes time is imported; half an import must not go on.
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, leave)
    from pfedes.cli import execute
    from pfedes.memory import keep_freed_memory

    keep_freed_memory()
    sys.exit(execute(sys.argv[1:]))


def leave(number: int, frame: FrameType | None) -> None:
    """Ends the process at once.

    Files are replaced atomically and worker processes end with their parent: nothing is lost.
    """
    os.write(2, b"pfedes: stopped\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
