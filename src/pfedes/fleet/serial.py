"""The simplest fleet: one client after another, in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from pfedes.core.client import Card
from pfedes.core.protocol import Failure, Reply, Scored, Task
from pfedes.fleet.client_host import ClientHost


class SerialFleet:
    """Works through the tasks in the order given."""

    def __init__(self, host: ClientHost, threads: int) -> None:
        self.host = host
        self.threads = threads

    @property
    def places(self) -> int:
        return 1

    @property
    def manner(self) -> str:
        return "one client after another"

    def enroll(self) -> list[Card]:
        return self.host.cards()

    def round(self, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
        for task in tasks:
            with with_threads(self.threads):
                answer = self.host.answer(task)
            yield answer

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Scored | Failure]:
        for task in tasks:
            with with_threads(self.threads):
                answer = self.host.score(task)
            yield answer

    def close(self) -> None:
        """Nothing to let go of."""


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Bits depend on the number of threads, and the process belongs to the caller."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
