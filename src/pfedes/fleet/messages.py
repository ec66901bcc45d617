"""Messages between processes: a length, then a self-checking payload."""

from collections.abc import Mapping
from typing import IO, Any, cast, get_args

from pfedes.core.measures import Measures
from pfedes.core.payload import Payload, Value, decode, encode, under, within
from pfedes.core.protocol import MEASURES, SCORES_META, Failure, FailureCode, Reply, Scored, Task
from pfedes.core.scores import Scores
from pfedes.core.wire import MetaSpec, WireSpec
from pfedes.errors import DiskError, WireError

Message = dict[str, Any]
Answer = Reply | Failure | Scored | DiskError
"""The result of a task; a disk that cannot be written to ends the run."""


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
    """The kind of work that a message asks for, and the task."""
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
            return Payload(answer.payload.tensors, meta | _beside(answer.measures))
        case Scored(scores=scores):
            meta = {**common, "kind": "scored", **scores.counts, **_beside(scores.measures)}
            return Payload({}, meta)
        case Failure():
            versions = {} if answer.versions is None else {"versions": list(answer.versions)}
            why: dict[str, Value] = {"reason": answer.reason, "code": answer.code}
            return Payload({}, {**common, "kind": "failure", **why, **versions})


def to_answer(message: Payload) -> tuple[Answer, str]:
    """The answer in a message and what was logged, or a WireError: it may come from anybody."""
    meta: Message = message.meta
    log = str(meta.get("log", ""))  # what comes from another organisation has none
    kind = meta.get("kind")
    if kind == "disk":
        return DiskError(_checked(meta, {"reason": str})["reason"]), log
    client = _checked(meta, {"client": str})["client"]
    if kind == "reply":
        return Reply(client, Payload(message.tensors, within("up/", meta)), _measures(meta)), log
    if kind == "scored":
        counts = _checked(meta, SCORES_META)
        return Scored(client, Scores.from_counts(counts, _measures(meta))), log
    if kind == "failure":
        reason = _checked(meta, {"reason": str})["reason"]
        return Failure(client, reason, _versions(meta.get("versions")), _code(meta)), log
    raise WireError(f"an answer of an unknown kind, {kind!r:.40}")


def _beside(measures: Measures | None) -> dict[str, Value]:
    return {} if measures is None else {MEASURES: measures.to_text()}


def _measures(meta: Message) -> Measures | None:
    # What comes from another organisation has none.
    return Measures.from_text(str(meta[MEASURES])) if MEASURES in meta else None


def _code(meta: Message) -> FailureCode:
    code = meta.get("code", "failed")  # what comes from another organisation has none
    if code not in get_args(FailureCode):
        raise WireError(f"a failure with an unknown code, {code!r:.40}")
    return cast(FailureCode, code)


def _versions(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not (isinstance(value, list) and all(type(version) is int for version in value)):
        raise WireError(f"versions that are no list of numbers, {value!r:.40}")
    return tuple(value)


def _checked(meta: Message, expected: Mapping[str, MetaSpec]) -> Message:
    """What is expected of a message, each value of its own kind."""
    found = {name: meta[name] for name in expected if name in meta}
    WireSpec(meta=expected).check(Payload({}, found))
    return found
