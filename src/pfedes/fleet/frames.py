"""Messages between processes: a length, then a self-checking payload."""

from dataclasses import asdict
from typing import IO, Any

from pfedes.client import Scores
from pfedes.errors import DiskError
from pfedes.fleet.base import Failure, Reply, Scored, Task
from pfedes.payload import Payload, Value, decode, encode, under, within

Message = dict[str, Any]
Answer = Reply | Failure | Scored | DiskError
"""What comes back; a disk that cannot be written to ends the run."""


def send(stream: IO[bytes], payload: Payload) -> None:
    data = encode(payload)
    stream.write(len(data).to_bytes(8, "little"))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> Payload | None:
    """The next message; None when the other side is gone."""
    size = stream.read(8)
    if len(size) < 8:
        return None
    length = int.from_bytes(size, "little")
    data = stream.read(length)
    return decode(data) if len(data) == length else None


def from_task(kind: str, task: Task) -> Payload:
    """A task as a message; `kind` says whether to answer or to score it."""
    about: dict[str, Value] = {
        "kind": kind,
        "run": task.run,
        "client": task.client,
        "round": task.round,
        "base": task.base,
    }
    return Payload(task.download.tensors, {**about, **under("down/", task.download.meta)})


def to_task(message: Payload) -> tuple[str, Task]:
    meta: Message = message.meta
    download = Payload(message.tensors, within("down/", meta))
    return meta["kind"], Task(meta["run"], meta["client"], meta["round"], meta["base"], download)


def from_answer(answer: Answer, log: str) -> Payload:
    """An answer as a message, with what was logged on the way."""
    if isinstance(answer, DiskError):
        return Payload({}, {"kind": "disk", "reason": str(answer), "log": log})
    common: dict[str, Value] = {"client": answer.client, "log": log}
    match answer:
        case Reply():
            meta = {**common, "kind": "reply", **under("up/", answer.payload.meta)}
            return Payload(answer.payload.tensors, meta)
        case Scored():
            return Payload({}, {**common, "kind": "scored", **asdict(answer.scores)})
        case Failure():
            versions = {} if answer.versions is None else {"versions": list(answer.versions)}
            return Payload({}, {**common, "kind": "failure", "reason": answer.reason, **versions})


def to_answer(message: Payload) -> tuple[Answer, str]:
    meta: Message = message.meta
    log = meta.get("log", "")  # what comes from another organisation has none
    if meta["kind"] == "disk":
        return DiskError(meta["reason"]), log
    client = meta["client"]
    if meta["kind"] == "reply":
        return Reply(client, Payload(message.tensors, within("up/", meta))), log
    if meta["kind"] == "scored":
        return Scored(client, Scores(**{k: meta[k] for k in Scores.__dataclass_fields__})), log
    versions = tuple(meta["versions"]) if "versions" in meta else None
    return Failure(client, meta["reason"], versions), log
