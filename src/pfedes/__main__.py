"""The `pfedes` command, and `python -m pfedes`."""

import os
import signal
import sys

from pfedes.fleet.process import LEASH, end_with, keep_freed_memory, leave, stopping


def main() -> None:
    """Runs the command line: 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    for kind in stopping():
        signal.signal(kind, leave)
    if leash := os.environ.pop(LEASH, ""):
        end_with(int(leash))
    keep_freed_memory()
    # Only now, since it takes time: half an import must not go on.
    from pfedes.cli import execute

    sys.exit(execute(sys.argv[1:]))


if __name__ == "__main__":
    main()
