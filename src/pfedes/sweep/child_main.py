"""`python -m pfedes.sweep.child_main`: carries out the runs that its parent asks for.

A `CellRequest` on a line of standard input is answered by a `CellResult` on a line of standard
output. One process for many runs loads torch once.

The parent holds the other end of standard input. When it is gone, however it went, the pipe closes,
and this process ends at once: commits are atomic, so nothing is lost by it.
"""

import os
import signal
import threading
import tomllib
from queue import SimpleQueue

from pfedes.config import validate
from pfedes.errors import FailedRunError, PfedesError
from pfedes.federation.loop import Federation
from pfedes.fleet.process import keep_freed_memory, leave
from pfedes.imports import kind_text_and_place
from pfedes.sweep.child import CellRequest, CellResult


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


def carry_out(request: CellRequest) -> CellResult:
    """Begins or continues one run, to its end. A fault in one must not take the others with it."""
    try:
        if request.config:
            config = validate(tomllib.loads(request.config))
            Federation(config, out=request.directory).run()
        else:
            Federation.resume(
                request.directory, rounds=request.rounds, data_dir=request.data_dir or None
            ).run()
    except PfedesError as error:
        return CellResult(str(error), failed=isinstance(error, FailedRunError))
    except Exception as error:
        return CellResult(kind_text_and_place(error), failed=True)
    return CellResult()


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
