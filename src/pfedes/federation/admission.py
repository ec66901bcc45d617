"""Which answers the server accepts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pfedes.core.aggregation import norm
from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.payload import Payload
from pfedes.core.protocol import Failure, FailureCode, Reply, Task
from pfedes.core.scores import Scores
from pfedes.errors import WireError
from pfedes.fleet.allow_list import reply_spec, told_card
from pfedes.formatting import plain
from pfedes.methods.base import Method, Received

LARGEST_CHANGE = 1e15  # far above any training; its square is still far from overflowing
LONGEST_REASON = 300  # characters; a client may send a book

Status = Literal["ok", "rejected", "failed"]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a task. A rejected reply is kept only to count what it cost."""

    task: Task
    status: Status
    reason: str = ""
    reply: Reply | None = None
    versions: tuple[int, ...] | None = None  # what a client has that lacked its base
    code: FailureCode | None = None  # of a failure
    asked: bool = True  # not so for a second answer, or one from a client that has no task


class Admission:
    """The answers of one round, examined as they come in.

    A reply is accepted only if it is whole, on the allow-list, and the first answer to its task.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        cards: Mapping[str, Card],
        method: Method[Any],
        ctx: Context,
        scores: Mapping[str, Scores] | None = None,
        *,
        over_network: bool = False,
    ) -> None:
        """`scores` are everybody's last ones: how many samples there are must not change."""
        self.tasks = {task.client: task for task in tasks}
        self.cards = cards
        self.method = method
        self.ctx = ctx
        self.scores = scores or {}
        self.over_network = over_network
        self._first: dict[str, Verdict] = {}
        self._strays: list[Verdict] = []

    def examine(self, answer: Reply | Failure) -> Verdict:
        """The verdict on an answer, which is kept."""
        name = answer.client
        if name in self.tasks and name not in self._first:
            verdict = self._first[name] = self._judge(answer, self.tasks[name])
        else:
            reason = "a second answer to one task" if name in self.tasks else "was not asked"
            nothing = Task("", printable(name), self.ctx.round, 0, Payload())
            reply = answer if isinstance(answer, Reply) else None
            verdict = Verdict(nothing, "rejected", reason, reply, asked=False)
            self._strays.append(verdict)
        return verdict

    def verdicts(self) -> list[Verdict]:
        """A verdict on every task, in order, and then on answers without a task."""
        silent = {
            n: Verdict(task, "failed", "no answer", code="silent") for n, task in self.tasks.items()
        }
        return [*{**silent, **self._first}.values(), *self._strays]

    def accepted(self) -> list[Received]:
        """The uploads that passed, in the order of the tasks."""
        return [
            Received(told_card(self.cards[verdict.task.client], self.ctx), verdict.reply.payload)
            for verdict in self.verdicts()
            if verdict.status == "ok" and verdict.reply is not None
        ]

    def _judge(self, answer: Reply | Failure, task: Task) -> Verdict:
        if isinstance(answer, Failure):
            reason = printable(answer.reason)
            return Verdict(task, "failed", reason, versions=answer.versions, code=answer.code)
        try:
            self._check(answer, task)
        except WireError as error:
            return Verdict(task, "rejected", printable(str(error)), reply=answer)
        return Verdict(task, "ok", reply=answer)

    def _check(self, answer: Reply, task: Task) -> None:
        card, payload = self.cards[task.client], answer.payload
        spec = reply_spec(self.method, card, self.ctx, over_network=self.over_network)
        spec.check(payload)
        expected = {
            "run": task.run,
            "round": task.round,
            "base": task.base,
            "samples": card.samples,
        }
        for key in expected.keys() & spec.meta.keys():
            if (found := payload.meta[key]) != expected[key]:
                raise WireError(f"metadata {key!r} is {found!r:.40}, expected {expected[key]!r}")
        if (scores := answer.scores) is not None:
            scores.check_totals(self.scores.get(task.client, scores))
        if self.method.averages_parameters and self.ctx.summed == "no":
            self._check_norm(Received(card, payload), task)

    def _check_norm(self, upload: Received, task: Task) -> None:
        size = norm(self.method.change(upload, task.download, self.ctx))
        allowed = self.ctx.aggregation.max_norm
        # NaN too: factors may be finite whose product is not.
        if not size <= (allowed or LARGEST_CHANGE):
            limit = allowed or LARGEST_CHANGE
            raise WireError(f"it differs from the download by {size:.4g}, allowed: {limit:g}")


def printable(text: str) -> str:
    """A client's text, made safe for a log and a terminal."""
    return plain(" ".join(text.split())[:LONGEST_REASON])
