"""`python -m pfedes.leash ARGUMENTS`: the `pfedes` command, ending when its parent does.

The parent holds the other end of standard input. When it is gone, however it went, the pipe
closes, and this process ends at once: commits are atomic, so nothing is lost by it.
"""

import os
import threading

from pfedes.__main__ import main


def _wait_for_the_end() -> None:
    # Not through sys.stdin, whose lock a thread may not hold when the interpreter ends.
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_wait_for_the_end, daemon=True).start()
    main()
