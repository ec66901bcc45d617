"""Which answers the server accepts."""

from dataclasses import dataclass
from typing import Any, Literal

from pfedes.client import Card
from pfedes.errors import WireError
from pfedes.fleet.base import Failure, Reply, Task
from pfedes.fleet.host import reply_spec
from pfedes.methods.base import Context, Method

Status = Literal["ok", "rejected", "failed"]


@dataclass(frozen=True)
class Verdict:
    """What became of a task. A rejected reply is kept only to count what it cost."""

    task: Task
    status: Status
    reason: str = ""
    reply: Reply | None = None
    versions: tuple[int, ...] | None = None  # what a client has that lacked its base


def examine(
    answer: Reply | Failure, task: Task, card: Card, method: Method[Any], ctx: Context
) -> Verdict:
    """Accepts a reply only if it is whole, on the allow-list, and an answer to this very task."""
    if isinstance(answer, Failure):
        return Verdict(task, "failed", answer.reason, versions=answer.versions)
    try:
        reply_spec(method, card, ctx).check(answer.payload)
        expected = {
            "run": task.run,
            "round": task.round,
            "base": task.base,
            "samples": card.samples,
        }
        for key, value in expected.items():
            if (found := answer.payload.meta[key]) != value:
                raise WireError(f"metadata {key!r} is {found!r}, expected {value!r}")
    except WireError as error:
        return Verdict(task, "rejected", str(error), reply=answer)
    return Verdict(task, "ok", reply=answer)
