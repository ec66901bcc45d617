"""Estimates how long tasks take, from the times of earlier ones."""

from collections.abc import Iterable

from pfedes.core.protocol import Task
from pfedes.population.base import Population


class Pace:
    """Seconds per training sample of each architecture, as the last task took them."""

    def __init__(self, population: Population) -> None:
        self._sizes = population.sizes
        self._architectures = population.architectures
        self._pace: dict[str, float] = {}

    def learn(self, task: Task, seconds: float) -> None:
        self._pace[self._architectures[task.client]] = seconds / self._sizes[task.client]

    def knows(self, task: Task) -> bool:
        """Whether a task of the same architecture was seen."""
        return self._architectures[task.client] in self._pace

    def expected(self, task: Task) -> float:
        """Seconds that a task will take; one of an unknown kind as the slowest that is known."""
        slowest = max(self._pace.values(), default=1.0)
        return self._sizes[task.client] * self._pace.get(self._architectures[task.client], slowest)

    def longest_first(self, tasks: Iterable[Task]) -> list[Task]:
        return sorted(tasks, key=self.expected, reverse=True)
