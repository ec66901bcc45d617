"""The fleet of worker processes on this machine.

Workers live as long as the run, one task each at a time, the longest first. One that dies is
replaced and its task repeated: a client's round depends on nothing but its task and its files, so
the result is the same.
"""

import logging
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Queue

from pfedes.children import python, same_imports
from pfedes.client import Card
from pfedes.errors import DiskError, WireError
from pfedes.fleet.base import Failure, Reply, Scored, Task
from pfedes.fleet.frames import Answer, from_task, receive, send, to_answer
from pfedes.fleet.host import ClientHost
from pfedes.fleet.pace import Pace
from pfedes.payload import Payload
from pfedes.report.formats import counted

log = logging.getLogger(__name__)

ATTEMPTS = 3


class WorkerFleet:
    """Spreads tasks over persistent worker processes."""

    def __init__(self, host: ClientHost, config_text: str, workers: int) -> None:
        self.host = host
        self._pace = Pace(host.population)
        data = host.population.digest
        self._workers = [Worker(config_text, host.store.root, data) for _ in range(workers)]

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
        answers: Queue[Answer] = Queue()
        busy = [
            threading.Thread(target=self._serve, args=(worker, kind, waiting, answers), daemon=True)
            for worker in self._workers[: len(tasks)]
        ]
        for thread in busy:
            thread.start()
        for _ in tasks:
            answer = answers.get()
            if isinstance(answer, DiskError):
                raise answer
            yield answer
        for thread in busy:
            thread.join()

    def _serve(
        self, worker: "Worker", kind: str, waiting: deque[Task], answers: Queue[Answer]
    ) -> None:
        """Lets one worker work through tasks until none is waiting."""
        while waiting:
            try:
                task = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            began = time.perf_counter()
            answers.put(insist(worker, kind, task))
            self._pace.learn(task, time.perf_counter() - began)


def insist(worker: "Worker", kind: str, task: Task) -> Answer:
    """The answer to a task, from a new process if the worker dies on it."""
    for attempt in range(1, ATTEMPTS + 1):
        if (answer := worker.ask(kind, task)) is not None:
            return answer
        if worker.stopped:
            break
        log.warning("a worker died on %s (attempt %d of %d)", task.client, attempt, ATTEMPTS)
    return Failure(task.client, f"its worker process died {ATTEMPTS} times")


class Worker:
    """One worker process, started when it is first needed."""

    def __init__(self, config_text: str, clients: Path, data: str = "") -> None:
        """`data` is the digest of what it must find; '' where this process has not seen it."""
        self._config = Payload({}, {"config": config_text, "data": data})
        self._clients = str(clients.absolute())
        self._process: subprocess.Popen[bytes] | None = None
        self._leash = -1
        self._changing = threading.Lock()
        self.stopped = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

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
            if self._process is None and not self.stopped:
                ours, theirs = os.pipe()
                try:
                    self._process = subprocess.Popen(
                        python("-m", "pfedes.fleet.worker", self._clients, str(ours)),
                        env=same_imports(),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        pass_fds=[ours],
                        process_group=0,  # Ctrl-C is for this process alone
                    )
                except OSError:
                    os.close(theirs)
                    raise
                finally:
                    os.close(ours)
                self._leash = theirs
                assert self._process.stdin is not None
                send(self._process.stdin, self._config)
            return self._process

    def _discard(self) -> None:
        with self._changing:
            process, self._process = self._process, None
            if process is None:
                return
            process.kill()
            process.wait()
            os.close(self._leash)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):  # the rest of a task that nobody will read
                        stream.close()
