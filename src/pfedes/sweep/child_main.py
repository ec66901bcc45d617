"""`python -m pfedes.sweep.child_main`: carries out the runs that its parent asks for.

A `CellRequest` on a line of standard input is answered by a `CellResult` on a line of standard
output. One process for many runs loads torch once.

The parent holds the other end of standard input. When it is gone, however it went, the pipe closes,
and this process ends at once: commits are atomic, so nothing is lost by it.
"""

import os
import signal
import threading
from queue import SimpleQueue

from pfedes.fleet.process import keep_freed_memory, leave
from pfedes.sweep.carry_out import carry_out
from pfedes.sweep.child import CellRequest


def main() -> None:
    """Answers until the parent is gone."""
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, leave)
    keep_freed_memory()
    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what user code prints must not be taken for answers
    while True:
        result = carry_out(CellRequest.from_line(requests.get()))
        print(result.to_line(), file=answers, flush=True)


def _read(requests: "SimpleQueue[str]") -> None:
    # Not through sys.stdin, whose lock a thread may not hold when the interpreter ends.
    rest = b""
    while part := os.read(0, 4096):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            requests.put(line.decode())
    os._exit(1)


if __name__ == "__main__":
    main()
