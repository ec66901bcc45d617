"""Secure sums at the coordinator: carried to participants, and continued after a kill."""

import base64
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pfedes.config import Config
from pfedes.core.payload import Payload, decode, encode
from pfedes.core.protocol import Reply, Task
from pfedes.core.wire import WireSpec
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.sum_messages import (
    SumEntry,
    SumRequest,
    asked_for,
    masked_in,
    masked_spec,
    opened_in,
    opened_spec,
)
from pfedes.errors import WireError
from pfedes.files import read, remove
from pfedes.fleet.messages import from_answer, to_answer
from pfedes.securesum.collector import Collector, Total, collect, reopened
from pfedes.securesum.masking import Ready
from pfedes.securesum.member import Masked

log = logging.getLogger(__name__)

AskMembers = Callable[[Mapping[str, Payload], WireSpec], Iterator[tuple[str, Payload]]]
"""Sends members their messages, and yields what those answer that answer as expected."""

PAUSE = 1.0  # seconds between two times that the rest are asked to open


class AwayError(Exception):
    """Members that are needed came back, and can be asked in the next job."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"{', '.join(names)} can continue the sum in the next job")


class SecureSums:
    """The secure sums of a federation's run, one file each in `sums/`."""

    def __init__(self, layout: Layout, ask: AskMembers, config: Config) -> None:
        """Asks members that do not open again, for `federation.timeout` seconds."""
        self._layout = layout
        self._ask = ask
        self._config = config
        self._timeout = config.federation.timeout

    def selected(self, run: str, round: int) -> list[str]:
        """Members of the sum that was sealed in this round before the server ended."""
        collector = self._sealed(round)
        return list(collector.names) if collector is not None and collector.run == run else []

    def replies(self, tasks: Sequence[Task]) -> list[Reply] | None:
        """The answers to these tasks if their sum was sealed; else None."""
        collector = self._sealed(tasks[0].round)
        if collector is None:
            return None
        by_name = {task.client: task for task in tasks}
        replies = []
        for name in collector.names:
            tree = json.loads(collector.attached[name])
            if name not in by_name or tree["task"] != by_name[name].identity():
                log.warning("round %d: dropped a sum that belongs to another run", tasks[0].round)
                collector.remove()
                return None
            answer, _ = to_answer(decode(base64.b64decode(tree["reply"])))
            assert isinstance(answer, Reply), "only replies are attached"
            replies.append(answer)
        log.info("round %d: the sum continues with the sealed set", tasks[0].round)
        return replies

    def total(self, tasks: Sequence[Task], replies: Sequence[Reply], size: int) -> Total:
        """The sum of what these participants have ready; a WireError if there is none."""
        run, round = tasks[0].run, tasks[0].round
        asked = asked_for(self._config, tasks[0])
        place = self._place(round)
        collector = self._sealed(round) or Collector(place, run, round, asked, size)
        by_reply = {reply.client: reply for reply in replies}
        by_task = {task.client: task for task in tasks}
        exchange = _Exchange(self._layout, self._ask, collector, by_reply)
        waiting = _Waiting(self._layout, collector, time.monotonic() + self._timeout)

        def attached(names: Sequence[str]) -> dict[str, str]:
            return {name: _attachment(by_task[name], by_reply[name]) for name in names}

        ready = [_ready(reply) for reply in replies]
        try:
            return collect(
                *(collector, ready, exchange),
                least=self._config.privacy.least,
                attached=attached,
                waiting=waiting,
            )
        except WireError:
            waiting.for_return(exchange.silent)
            raise

    def forget(self, but: int) -> None:
        """Removes the sums of all rounds but this one."""
        for path in self._layout.sums.glob("*.json"):
            if path != self._place(but):
                remove(path)

    def _sealed(self, round: int) -> Collector | None:
        return reopened(self._place(round))

    def _place(self, round: int) -> Path:
        return self._layout.sums / f"{round:05d}.json"


class _Exchange:
    """The collector's two exchanges as messages."""

    def __init__(
        self,
        layout: Layout,
        ask: AskMembers,
        collector: Collector,
        replies: Mapping[str, Reply],
    ) -> None:
        self._layout = layout
        self._ask = ask
        self._collector = collector
        self._replies = replies
        self.silent: set[str] = set()  # the members that were asked last and did not answer

    def mask(self, members: Sequence[Ready]) -> Iterator[tuple[str, Masked]]:
        entries = [self._entry(member) for member in members]
        messages = {m.name: self._request(m.name).to_mask(entries) for m in members}
        self.silent = set(messages)
        for name, answer in self._ask(messages, masked_spec(self._collector.size, len(members))):
            self.silent.discard(name)
            if answer.meta["set"] != self._collector.digest.hex():
                log.warning("%s is not in the sum: it was asked for something else", name)
                continue
            yield name, masked_in(answer)

    def open(
        self, digest: bytes, sealed: Mapping[str, Sequence[bytes]]
    ) -> Iterator[tuple[str, Sequence[bytes]]]:
        messages = {n: self._request(n).to_open(digest, shares) for n, shares in sealed.items()}
        members = len(next(iter(sealed.values()), []))
        self.silent = set(messages)
        for name, answer in self._ask(messages, opened_spec(members)):
            self.silent.discard(name)
            yield name, opened_in(answer)

    def _request(self, name: str) -> SumRequest:
        return SumRequest(name, self._collector.run, self._collector.round)

    def _entry(self, member: Ready) -> SumEntry:
        meta = self._replies[member.name].payload.meta
        return SumEntry(
            name=member.name,
            key=member.key.hex(),
            nonce=member.nonce.hex(),
            certificate=read(self._layout.certificate(member.name)).decode(),
            signature=str(meta["sum_signature"]),
        )


class _Waiting:
    """Whether members that have not opened are asked again."""

    def __init__(self, layout: Layout, collector: Collector, until: float) -> None:
        self._layout = layout
        self._collector = collector
        self._until = until

    def __call__(self) -> bool:
        self._call_off(set(self._collector.names))
        time.sleep(PAUSE)
        return time.monotonic() < self._until

    def for_return(self, silent: set[str]) -> None:
        """Waits for sites without which there is no sum, if they are gone."""
        while self._gone(silent) and time.monotonic() < self._until:
            self._call_off(silent)
            time.sleep(PAUSE)

    def _gone(self, names: set[str]) -> set[str]:
        presence = self._layout.presence()
        return {name for name in names if not presence.has(name)}

    def _call_off(self, names: set[str]) -> None:
        """A site that was killed and came back can be asked in the next job, and not in this."""
        if back := sorted(names & set(self._layout.presence().waiting())):
            raise AwayError(back)


def _ready(reply: Reply) -> Ready:
    meta = reply.payload.meta
    key, nonce = (bytes.fromhex(str(meta[part])) for part in ("sum_key", "nonce"))
    return Ready(reply.client, key, nonce)


def _attachment(task: Task, reply: Reply) -> str:
    data = base64.b64encode(encode(from_answer(reply, ""))).decode()
    return json.dumps({"task": task.identity(), "reply": data})
