"""The fleet of worker processes on this machine.

Workers live as long as the run, one task each at a time, the longest first. One that dies is
replaced and its task repeated: a client's round depends on nothing but its task and its files, so
the result is the same.
"""

import logging
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Queue

from pfedes.core.client import Card
from pfedes.core.payload import Payload, Value
from pfedes.core.protocol import Failure, Reply, Scored, Task
from pfedes.errors import WireError
from pfedes.fleet import early
from pfedes.fleet.client_host import ClientHost
from pfedes.fleet.messages import Answer, from_task, receive, send, to_answer
from pfedes.fleet.scheduling import Pace
from pfedes.formatting import counted

log = logging.getLogger(__name__)

ATTEMPTS = 3


class WorkerFleet:
    """Spreads tasks over persistent worker processes."""

    def __init__(self, host: ClientHost, config_text: str, workers: int) -> None:
        self.host = host
        self._pace = Pace(host.population)
        data = host.population.digest
        self._workers = [Worker(config_text, host.store.root, data) for _ in range(workers)]
        for worker in self._workers:
            worker.begin()

    @property
    def places(self) -> int:
        return len(self._workers)

    @property
    def manner(self) -> str:
        return counted(self.places, "worker")

    def enroll(self) -> list[Card]:
        return self.host.cards()

    def round(self, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
        for answer in self._spread("answer", tasks):
            assert not isinstance(answer, Scored)
            yield answer

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Scored | Failure]:
        for answer in self._spread("score", tasks):
            assert not isinstance(answer, Reply)
            yield answer

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()

    def _spread(self, kind: str, tasks: Sequence[Task]) -> Iterator[Reply | Failure | Scored]:
        waiting = deque(self._pace.longest_first(tasks))
        answers: Queue[Answer | Exception] = Queue()
        busy = [
            threading.Thread(target=self._serve, args=(worker, kind, waiting, answers), daemon=True)
            for worker in self._workers[: len(tasks)]
        ]
        for thread in busy:
            thread.start()
        for _ in tasks:
            answer = answers.get()
            if isinstance(answer, Exception):
                raise answer
            yield answer
        for thread in busy:
            thread.join()

    def _serve(
        self, worker: "Worker", kind: str, waiting: deque[Task], answers: Queue[Answer | Exception]
    ) -> None:
        """Lets one worker work through tasks until none is waiting."""
        while waiting:
            try:
                task = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            began = time.perf_counter()
            try:
                answer = insist(worker, kind, task)
                self._pace.learn(task, time.perf_counter() - began)
            except Exception as error:  # a thread that died silently would be waited for forever
                answers.put(error)
                return
            answers.put(answer)


def insist(worker: "Worker", kind: str, task: Task) -> Answer:
    """The answer to a task, from a new process if the worker dies on it."""
    for attempt in range(1, ATTEMPTS + 1):
        if (answer := worker.ask(kind, task)) is not None:
            return answer
        if worker.stopped:
            return Failure(task.client, "its worker process was stopped")
        log.warning("a worker died on %s (attempt %d of %d)", task.client, attempt, ATTEMPTS)
    return Failure(task.client, f"its worker process died {ATTEMPTS} times")


class Worker:
    """One worker process, started when it is first needed or told to begin."""

    def __init__(self, config_text: str, clients: Path, data: str = "") -> None:
        """`data` is the digest of what it must find; '' where this process has not seen it."""
        self._clients = str(clients.absolute())
        first: dict[str, Value] = {"config": config_text, "data": data, "clients": self._clients}
        self._config = Payload({}, first)
        self._begun: early.Begun | None = None
        self._changing = threading.Lock()
        self.stopped = False

    def expect(self, data: str) -> None:
        """A process that is started from now on must find the data with this digest."""
        self._config = Payload({}, {**self._config.meta, "data": data})

    @property
    def pid(self) -> int | None:
        return self._begun.process.pid if self._begun is not None else None

    def begin(self) -> None:
        """Starts the process, so that it is ready when it is first asked."""
        with suppress(OSError):  # the next task for it reports the failure
            self._started()

    def ask(self, kind: str, task: Task) -> Answer | None:
        """The worker's answer; None if it died."""
        try:
            process = self._started()
            if process is None or process.stdin is None or process.stdout is None:
                return None
            send(process.stdin, from_task(kind, task))
            message = receive(process.stdout)
            answer, logged = to_answer(message) if message is not None else (None, "")
        except (OSError, ValueError, WireError) as error:
            log.info("a worker cannot be asked: %s", error)
            answer = None
        if answer is None:
            self._discard()
            return None
        if logged:
            log.info("%s: %s", task.client, logged)
        return answer

    def stop(self) -> None:
        """Ends the process now. Commits are atomic: nothing is lost."""
        self.stopped = True
        self._discard()

    def _started(self) -> "subprocess.Popen[bytes] | None":
        with self._changing:
            if self._begun is None and not self.stopped:
                self._begun = early.take(self._clients)
                assert self._begun.process.stdin is not None
                send(self._begun.process.stdin, self._config)
            return self._begun.process if self._begun is not None else None

    def _discard(self) -> None:
        with self._changing:
            begun, self._begun = self._begun, None
            if begun is not None:
                begun.end()
