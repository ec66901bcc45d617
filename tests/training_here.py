"""A worker without a process: what it would do is done in this one, at once."""

import tomllib
from pathlib import Path

from pfedes.config import validate
from pfedes.core.protocol import Failure, Task
from pfedes.fleet.messages import Answer, from_answer, from_task, to_answer, to_task
from pfedes.fleet.worker_main import answer_of, host_for
from pfedes.store.client_store import ClientStore


class WorkerHere:
    """Takes the place of `Worker`. What it is told and says goes through the same messages."""

    def __init__(self, config_text: str, clients: Path, data: str = "") -> None:
        settings = validate(tomllib.loads(config_text))
        self._store = ClientStore(clients)
        self._host, self._trouble = host_for(settings, self._store, data)
        self.stopped = False

    def expect(self, data: str) -> None:
        """No new process will look at the data."""

    def ask(self, kind: str, task: Task) -> Answer | None:
        asked, task = to_task(from_task(kind, task))
        if self._host is None:
            return Failure(task.client, self._trouble)
        return to_answer(from_answer(answer_of(self._host, asked, task), ""))[0]

    def stop(self) -> None:
        self.stopped = True
