"""A worker process: `python -m pfedes.fleet.worker_main LEASH CLIENTS`.

It builds the same simulation as its parent from the configuration that is the first message on
standard input, and answers the tasks that follow if its data is the same. It works with the
clients' files directly: states do not travel.
"""

import os
import sys
import tomllib
from pathlib import Path

import torch

from pfedes.config import Config, validate
from pfedes.core.payload import Payload
from pfedes.core.protocol import Failure, Reply, Task
from pfedes.errors import DiskError, PfedesError
from pfedes.fleet.client_host import ClientHost, host_of
from pfedes.fleet.messages import Answer, from_answer, receive, send, to_task
from pfedes.fleet.process import end_with, keep_freed_memory
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore
from pfedes.store.lock import hold_as_worker
from pfedes.store.log import Collected


def main() -> None:
    end_with(int(sys.argv[1]))  # the rest is for people who list processes
    keep_freed_memory()
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what user code prints must not end up among the answers
    logged = Collected()
    logged.begin()

    if (first := receive(tasks)) is None:
        return
    settings = validate(tomllib.loads(str(first.meta["config"])))
    torch.set_num_threads(settings.runtime.threads)
    store = ClientStore(Path(str(first.meta["clients"])))
    data = str(first.meta["data"])
    host, trouble = host_for(settings, store, data)
    logged.take()  # the parent has said the same
    lock = None
    while (message := receive(tasks)) is not None:
        kind, task = to_task(message)
        if host is None:  # missing files may be there by now
            host, trouble = host_for(settings, store, data)
        if kind == "answer" and lock is None:
            lock = hold_as_worker(store.root.parent)
        answer = Failure(task.client, trouble) if host is None else answer_of(host, kind, task)
        send(answers, from_answer(answer, logged.take()))


def host_for(settings: Config, store: ClientStore, data: str) -> tuple[ClientHost | None, str]:
    """The client host, or the reason why there is none: users' models and data may fail."""
    try:
        simulation = Simulation(settings)
    except PfedesError as error:
        return None, str(error)
    if data and simulation.population.digest != data:
        # Files, or the directory they are looked for in, are not what they were a moment ago.
        return None, "its worker process finds other data than the run was started with"
    return host_of(simulation, store), ""


def answer_of(host: ClientHost, kind: str, task: Task) -> Answer:
    try:
        match kind:
            case "enroll":
                return _with_digest(host.introduce(task), host.population.digest)
            case "answer":
                return host.answer(task)
            case "notice":
                return host.heed(task)
            case _:
                return host.score(task)
    except DiskError as error:
        return error


def _with_digest(answer: Reply | Failure, digest: str) -> Reply | Failure:
    """Adds the digest by which the parent compares the data."""
    if isinstance(answer, Failure):
        return answer
    return Reply(answer.client, Payload({}, {**answer.payload.meta, "data": digest}))


if __name__ == "__main__":
    main()
