"""`python -m pfedes.leash`: carries out the command lines that its parent writes to it.

A command line is a JSON list of words on one line of standard input. It is answered with a line on
standard output: the exit code, and the last line that was said on standard error. One process for
many commands loads torch once.

`python -m pfedes.leash WORD...` carries out that one command line, and leaves as it would.

The parent holds the other end of standard input. When it is gone, however it went, the pipe
closes, and this process ends at once: commits are atomic, so nothing is lost by it.
"""

import io
import json
import os
import signal
import sys
import threading
import traceback
from contextlib import redirect_stderr
from queue import SimpleQueue

from pfedes.__main__ import leave
from pfedes.cli import execute
from pfedes.memory import keep_freed_memory


def main() -> None:
    """Answers until the parent is gone, or carries out the one command line that it was given."""
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, leave)
    keep_freed_memory()
    requests: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    if words := sys.argv[1:]:
        sys.exit(execute(words))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what commands print must not be taken for answers
    while True:
        print(json.dumps(_executed(json.loads(requests.get()))), file=answers, flush=True)


def _executed(words: list[str]) -> tuple[int, str]:
    with redirect_stderr(io.StringIO()) as said:
        try:
            code = execute(words)
        except Exception:  # a fault of ours in one command must not take the others with it
            traceback.print_exc()
            code = 1
    lines = said.getvalue().strip().splitlines()
    return code, lines[-1].removeprefix("pfedes: ") if lines else ""


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
