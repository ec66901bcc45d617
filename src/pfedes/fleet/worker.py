"""A worker process: `python -m pfedes.fleet.worker CLIENTS LEASH`.

It builds the same simulation as its parent from the configuration that is the first message on
standard input, and answers the tasks that follow if its data is the same. It works with the
clients' files directly: states do not travel.
"""

import os
import sys
import threading
import tomllib
from pathlib import Path

import torch

from pfedes.clientstore import ClientStore
from pfedes.config import Config, validate
from pfedes.errors import DiskError, PfedesError
from pfedes.fleet.base import Failure, Task
from pfedes.fleet.frames import Answer, from_answer, receive, send, to_task
from pfedes.fleet.host import ClientHost
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
    data = str(first.meta["data"])
    host, trouble = _host(settings, store, data)
    logged.take()  # the parent has said the same
    lock = None
    while (message := receive(tasks)) is not None:
        kind, task = to_task(message)
        if host is None:  # what was missing may be there by now
            host, trouble = _host(settings, store, data)
        if kind == "answer" and lock is None:
            lock = hold_as_worker(store.root.parent)
        answer = Failure(task.client, trouble) if host is None else _answer(host, kind, task)
        send(answers, from_answer(answer, logged.take()))


def _host(settings: Config, store: ClientStore, data: str) -> tuple[ClientHost | None, str]:
    """The clients' side, or why there is none: models and data may be somebody's own."""
    try:
        simulation = Simulation(settings)
    except PfedesError as error:
        return None, str(error)
    if data and simulation.population.digest != data:
        # Files, or the directory they are looked for in, are not what they were a moment ago.
        return None, "its worker process finds other data than the run was started with"
    return simulation.host(store), ""


def _answer(host: ClientHost, kind: str, task: Task) -> Answer:
    try:
        match kind:
            case "enroll":
                return host.introduce(task)
            case "answer":
                return host.answer(task)
            case "notice":
                return host.heed(task)
            case _:
                return host.score(task)
    except DiskError as error:
        return error


def _end_with_parent(leash: int) -> None:
    """The parent holds the other end and never writes: the pipe closes when it is gone."""
    os.read(leash, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
