"""A participant's record of all tasks that it answered, as long as it keeps its state.

The record never leaves the participant. No coordinator can reset its counts, either by a new run or
by asking for an earlier round again.
"""

import hmac
import secrets
import time
from pathlib import Path

from pydantic import ValidationError

from pfedes.core.payload import Payload
from pfedes.core.protocol import Task
from pfedes.errors import DamageError
from pfedes.files import append_line, read, whole_lines, write_atomically
from pfedes.section import Section

KEY_BYTES = 32


class Answer(Section):
    """One task that was answered, and what that took."""

    time: str
    run: str
    round: int
    base: int
    download: str  # its digest
    flops: int
    seconds: float

    def is_for(self, task: Task) -> bool:
        """Whether this answer was to that very task."""
        found = {"run": self.run, "round": self.round, "base": self.base, "download": self.download}
        return found.items() <= task.identity().items()


class Answers:
    """`answers.jsonl`: a line for each task, written before its answer leaves."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "answers.jsonl"
        self._key = directory / "digest.key"

    def all(self) -> list[Answer]:
        if not self.path.exists():
            return []
        try:
            return [Answer.model_validate_json(line) for line in whole_lines(self.path)]
        except ValidationError as error:
            reason = str(error).splitlines()[0]
            raise DamageError(f"{self.path} is damaged: {reason}") from None

    def add(self, task: Task, reply: Payload) -> None:
        """Writes a task down, unless it was answered before."""
        if any(answer.is_for(task) for answer in self.all()):
            return
        identity = {k: v for k, v in task.identity().items() if k != "client"}
        spent = {key: reply.meta[key] for key in ("flops", "seconds")}
        answer = Answer.model_validate(
            {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **identity, **spent}
        )
        append_line(self.path, answer.model_dump_json().encode())

    def keyed(self, digest: str) -> str:
        """A digest by which only this participant can tell what it is of."""
        if not self._key.exists():
            write_atomically(self._key, secrets.token_bytes(KEY_BYTES))
        key = read(self._key)
        if len(key) != KEY_BYTES:
            raise DamageError(f"{self._key} is damaged: remove it, and a new key is made")
        return hmac.digest(key, digest.encode(), "sha256").hex()
