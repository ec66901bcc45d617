"""A worker process: `python -m pfedes.fleet.worker CLIENTS LEASH`.

It builds the same simulation as its parent from the configuration that is the first message on
standard input, then answers the tasks that follow. It works with the clients' files directly:
states do not travel.
"""

import os
import sys
import threading
import tomllib
from pathlib import Path

import torch

from pfedes.clientstore import ClientStore
from pfedes.config import validate
from pfedes.errors import DiskError
from pfedes.fleet.frames import Answer, from_answer, receive, send, to_task
from pfedes.memory import keep_freed_memory
from pfedes.runlock import hold_as_worker
from pfedes.runlog import Collected
from pfedes.simulation import Simulation


def main() -> None:
    clients, leash = sys.argv[1:]
    threading.Thread(target=_end_with_parent, args=(int(leash),), daemon=True).start()
    keep_freed_memory()
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what user code prints must not end up among the answers
    logged = Collected()
    logged.begin()

    if (first := receive(tasks)) is None:
        return
    settings = validate(tomllib.loads(str(first.meta["config"])))
    torch.set_num_threads(settings.runtime.threads)
    store = ClientStore(Path(clients))
    host = Simulation(settings).host(store)
    logged.take()  # the parent has said the same
    lock = None
    while (message := receive(tasks)) is not None:
        kind, task = to_task(message)
        if kind == "answer" and lock is None:
            lock = hold_as_worker(store.root.parent)
        answer: Answer
        try:
            answer = host.answer(task) if kind == "answer" else host.score(task)
        except DiskError as error:
            answer = error
        send(answers, from_answer(answer, logged.take()))


def _end_with_parent(leash: int) -> None:
    """The parent holds the other end and never writes: the pipe closes when it is gone."""
    os.read(leash, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
