"""Participants behind FLARE, as the round loop sees them: one more fleet."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pfedes.config import Config
from pfedes.core.client import Card
from pfedes.core.payload import Payload
from pfedes.core.protocol import MEASURES, Failure, Reply, Scored, Task
from pfedes.core.wire import WireSpec
from pfedes.deploy.coordinator.enrolment import Enrolment
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.secure_sums import AwayError, SecureSums
from pfedes.deploy.coordinator.strikes import Strikes
from pfedes.deploy.participant.handler import REFUSED
from pfedes.deploy.revocation import read_revocations
from pfedes.deploy.versions import enrolment_message
from pfedes.errors import DiskError, MethodError, WireError
from pfedes.federation.admission import printable
from pfedes.federation.listener import Listener
from pfedes.federation.loop import Federation, uniform
from pfedes.files import parse_json, read, write_atomically
from pfedes.fleet.allow_list import reply_spec, summand_size
from pfedes.fleet.messages import Answer, from_task, to_answer
from pfedes.formatting import counted
from pfedes.population.simulation import Simulation
from pfedes.results.run import Run, open_run
from pfedes.results.summary import Row
from pfedes.securesum.collector import Total

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NoMessage:
    """Why a site sent nothing that can be read."""

    why: str
    silent: bool = False  # it did not answer: it may be busy or gone
    struck: bool = False  # and it is to blame for that


Answered = tuple[str, Payload | NoMessage]
"""A site's name with its message, or with why there is none."""

Ask = Callable[[Mapping[str, Payload], int], Iterator[Answered]]
"""Sends each site its message, and yields answers as they come, for so many seconds."""

Beckon = Callable[[str], None]
"""Asks a site that is busy to say so when it is free, and waits for nothing."""


GREETING = 300  # seconds, at least, to load a model and data for the first time


# A participant that comes back has left a job; `serve` notices that and gives a strike.
GONE = NoMessage("no answer: it left, or left and came back", silent=True)


class CalledOffError(Exception):
    """This job is to end; the run continues with the next."""


class FlareFleet:
    """The sites of a job. A site that misses its deadline is not asked again until it answers."""

    def __init__(
        self, ask: Ask, beckon: Beckon, config: Config, sites: Sequence[str], layout: Layout
    ) -> None:
        self._ask = ask
        self._beckon = beckon
        self._timeout = config.federation.timeout
        self._measured = len(config.federation.classes) if config.federation.measures else 0
        run = begun(layout)
        enrolled = run.store.cards(run.manifest) if run is not None else []
        self._simulation = Simulation(config)
        self._enrolment = Enrolment(self._simulation, {card.name: card for card in enrolled})
        self.next = run.manifest.round + 1 if run is not None else 1  # the round to be done
        self.strikes = Strikes(layout.strikes)
        self._layout = layout
        self._fewest = config.fewest_uploads
        self._silent: set[str] = set()
        # With the noise as it was fixed when the run was made: all must add and count the same.
        settled = config.model_copy(update={"privacy": config.settled().privacy})
        self._greeting = settled.to_toml()
        self._sites = sites
        self._cards: dict[str, Card] = {}
        self.refusals: dict[str, str] = {}
        self._final: set[str] = set()  # whose refusals nothing can change in this job
        self._expected: dict[str, WireSpec] = {}
        self._tasks: Sequence[Task] = ()
        self._sums = SecureSums(layout, self._ask_members, settled)
        self._sums.forget(but=self.next)

    def expected(self, site: str) -> WireSpec:
        """The tensors that a site's answer may bring: none, unless it was asked for an upload."""
        return self._expected.get(site, WireSpec())

    @property
    def places(self) -> int:
        return len(self._cards)

    @property
    def manner(self) -> str:
        return f"{counted(self.places, 'participant')} on machines of their own"

    @property
    def reachable(self) -> set[str]:
        return self._cards.keys() - self._silent

    def move_on(self, round: int) -> None:
        """Another round is to be done: pauses may be over."""
        before, self.next = self.strikes.paused(self.next), round
        self._sums.forget(but=round)
        for name in sorted(before - self.strikes.paused(round)):
            log.info("%s's pause is over: it is asked again from round %d on", name, round)

    def heard(self, site: str) -> None:
        """It was only slow: it takes part again from the next round on."""
        self._silent.discard(site)

    def greet(self, *, first: bool = False) -> None:
        """Sends who has no card yet the configuration; who takes part answers with one.

        Data that was not mounted may be by the next time; who refused is not asked again. At the
        `first` time everybody is asked for whom the job was made.
        """
        paused = set() if first else self.strikes.paused(self.next)
        known = {*self._cards, *self._silent, *self._final, *paused}
        messages = {
            site: enrolment_message(site, self._greeting)
            for site in self._sites
            if site not in known
        }
        for site, message in self._ask(messages, max(self._timeout, GREETING)):
            answer = self._introduced(site, message)
            if isinstance(answer, Card):
                self._cards[site] = answer
                self.refusals.pop(site, None)
                continue
            log.warning("%s does not take part: %s", site, answer)
            if isinstance(message, Payload):
                self.refusals[site] = answer
        self._layout.write_refused(self.refusals)

    def enroll(self) -> list[Card]:
        return [self._cards[name] for name in sorted(self._cards)]

    def round(self, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
        self._tasks = tasks
        if tasks and (sealed := self._sums.replies(tasks)) is not None:
            yield from sealed
            return
        answered = []
        for answer in self._carry("answer", tasks):
            assert not isinstance(answer, Scored | DiskError)
            if isinstance(answer, Reply):
                answered.append(answer.client)
            yield answer
        self.strikes.answered(answered)

    def total(self, round: int, replies: Sequence[Reply]) -> Total:
        """The secure sum of what these participants have ready."""
        ctx = self._simulation.context(round)
        up = self._simulation.method.allowed(self._cards[replies[0].client], ctx).up
        try:
            return self._sums.total(self._tasks, replies, summand_size(up, ctx))
        except AwayError as error:
            raise CalledOffError(str(error)) from None

    def _ask_members(
        self, messages: Mapping[str, Payload], expected: WireSpec
    ) -> Iterator[tuple[str, Payload]]:
        """Yields the answers of members of a sum; any other answer counts as none."""
        asked = {name: message for name, message in messages.items() if name in self.reachable}
        self._expected = dict.fromkeys(asked, expected)
        for site, message in self._ask(asked, self._timeout):
            if isinstance(message, NoMessage):
                self._miss(site, message)
                log.warning("%s is not in the sum: %s", site, message.why)
                continue
            answer = _said(site, message, self._measured)
            try:
                if not isinstance(answer, Reply):
                    raise WireError(getattr(answer, "reason", "its answer is of another kind"))
                expected.check(answer.payload)
            except WireError as error:
                log.warning("%s is not in the sum: %s", site, printable(str(error)))
                continue
            yield site, answer.payload
        self._expected = {}

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Scored | Failure]:
        for answer in self._carry("score", tasks):
            assert not isinstance(answer, Reply | DiskError)
            yield answer

    def close(self) -> None:
        """Sites end with the job."""

    def select(self, names: Sequence[str], count: int, rng: np.random.Generator) -> Iterable[str]:
        """Selects as in a simulation, from participants that can be reached and are not paused."""
        run = begun(self._layout)
        if run is not None and (sealed := self._sums.selected(run.manifest.run, self.next)):
            return sealed
        able = [name for name in names if name in self.reachable]
        paused = self.strikes.paused(self.next)
        there = [name for name in able if name not in paused]
        if len(there) < self._fewest <= len(able):
            self.strikes.pardon(paused, "without it there are too few for a round")
            there = able
        if len(there) < self._fewest:  # rather wait than use up rounds that can only fail
            raise CalledOffError(f"{len(there)} can be reached, but a round needs {self._fewest}")
        return uniform(there, min(count, len(there)), rng)

    def take_leave(self, run: Run) -> Iterator[str]:
        """Sends all their accepted version and what their model needs; returns who received it."""
        simulation, manifest = run.simulation, run.manifest
        method, ctx = simulation.method, simulation.context(manifest.round)
        state = run.store.server_state(manifest)
        tasks = [
            Task(manifest.run, card.name, manifest.round, manifest.clients[card.name].version,
                 method.download(state, card, ctx))
            for card in run.store.cards(manifest)
        ]  # fmt: skip
        for answer in self._carry("notice", tasks):
            if isinstance(answer, Reply):
                yield answer.client

    def _carry(self, kind: str, tasks: Sequence[Task]) -> Iterator[Answer]:
        by_name = {task.client: task for task in tasks}
        asked = set(self._cards)
        if kind != "notice":
            asked = self.reachable - self.strikes.paused(self.next)
        for name in by_name.keys() - asked:
            yield Failure(name, "not connected")
        messages = {n: from_task(kind, t) for n, t in by_name.items() if n in asked}
        if kind == "answer":
            self._expected = {name: self._reply(by_name[name]) for name in messages}
        waiting = set(messages)
        self._layout.write_awaited(self.next, waiting)
        for site, message in self._ask(messages, self._timeout):
            waiting.discard(site)
            self._layout.write_awaited(self.next, waiting)
            yield self._answer(kind, site, message)
        self._expected = {}

    def _reply(self, task: Task) -> WireSpec:
        ctx = self._simulation.context(task.round)
        card = self._cards[task.client]
        return reply_spec(self._simulation.method, card, ctx, over_network=True)

    def _answer(self, kind: str, site: str, message: Payload | NoMessage) -> Answer:
        if isinstance(message, NoMessage):
            self._miss(site, message)
            return Failure(site, message.why, code="silent" if message.silent else "failed")
        answer = _said(site, message, self._measured)
        expected = Scored if kind == "score" else Reply
        return answer if isinstance(answer, expected | Failure) else _beside_the_point(site)

    def _miss(self, site: str, message: NoMessage) -> None:
        if message.silent:
            if message.struck:
                self.strikes.give(site, message.why, self.next)
            log.warning("%s is silent, and is not asked until it answers", site)
            self._silent.add(site)
            self._beckon(site)

    def _introduced(self, site: str, message: Payload | NoMessage) -> Card | str:
        """A site's card, or why it has none."""
        if isinstance(message, NoMessage):
            self._miss(site, message)
            return message.why
        try:
            self._enrolment.check_versions(site, message.meta)
        except WireError as error:
            self._final.add(site)
            return printable(str(error))
        answer = _said(site, message, self._measured)
        if isinstance(answer, Failure):
            if answer.code == REFUSED:
                self._final.add(site)
            return answer.reason
        if not isinstance(answer, Reply):
            return "expected a card as the answer to an enrolment"
        try:
            return self._enrolment.card(site, answer.payload.meta.get("card"))
        except WireError as error:
            return printable(f"unusable card: {error}")


def _said(site: str, message: Payload, classes: int) -> Reply | Failure | Scored:
    """The answer of a site. If it is not valid, it becomes a failure of that site.

    `classes` is the number of classes in measures; 0 = no measures were requested.
    """
    try:
        if MEASURES in message.meta and not classes:
            raise WireError("its answer holds measures that were not requested")
        answer, _ = to_answer(message)
        if isinstance(answer, Reply | Scored):
            answer.check_measures(classes)
    except WireError as error:
        return Failure(site, printable(f"unreadable answer: {error}"))
    if isinstance(answer, DiskError) or answer.client != site:
        return _beside_the_point(site)
    if isinstance(answer, Failure):
        # Another organisation says no more than a code, in the place of a reason.
        code = REFUSED if answer.reason == REFUSED else answer.code
        return replace(answer, reason=printable(answer.reason), code=code)
    return answer


def _beside_the_point(site: str) -> Failure:
    return Failure(site, "answered another message, or in another participant's name")


class _Boundary(Listener):
    """Admits participants between two rounds; ends the job if one needs another job."""

    def __init__(self, layout: Layout, fleet: FlareFleet) -> None:
        self.layout = layout
        self.fleet = fleet

    def started(self, run: Run) -> None:
        for site, reason in sorted(self.fleet.refusals.items()):
            log.warning("%s does not take part: %s", site, reason)  # said before there was a log

    def round_done(self, row: Row) -> None:
        self.fleet.move_on(row["round"] + 1)
        paused = self.fleet.strikes.paused(self.fleet.next)
        waiting = [name for name in self.layout.presence().waiting() if name not in paused]
        if waiting:
            raise CalledOffError(f"{', '.join(waiting)} can take part in the next")
        self.fleet.greet()


def begun(layout: Layout) -> Run | None:
    """The run, if there is one."""
    return open_run(layout.run) if (layout.run / "state").is_dir() else None


def is_finished(run: Run, config: Config) -> bool:
    """Whether all rounds of the federation's configuration are done; the run may know fewer."""
    ends = run.manifest.ends(config.train.rounds, config.train.patience)
    return ends or run.ended_by_budget


def coordinate(layout: Layout, config: Config, fleet: FlareFleet) -> None:
    """All rounds that are left, then everybody's leave."""
    fleet.greet(first=True)
    quorum = _quorum(layout, config)
    if (there := len(fleet.reachable)) < quorum and fleet.refusals:
        why = "; ".join(f"{site}: {reason}" for site, reason in sorted(fleet.refusals.items()))
        raise MethodError(f"{there} take part, but {quorum} must ({why}; their own logs say more)")
    if there < quorum:
        raise CalledOffError(f"{there} of {quorum} take part")
    try:
        run = _federation(layout, config, fleet, quorum).run()
    except MethodError as error:
        if begun(layout) is None and len(fleet.reachable) < quorum:
            # A participant fell silent before there was a run: the federation can still begin.
            raise CalledOffError(str(error)) from None
        raise
    told = _told(layout, run)
    for name in fleet.take_leave(run):
        told.add(name)
        tree = {"run": run.manifest.run, "round": run.manifest.round, "told": sorted(told)}
        write_atomically(layout.told, json.dumps(tree).encode())


def _quorum(layout: Layout, config: Config) -> int:
    """How many must be there to begin, to continue, or to hear how it ended."""
    run, asked = begun(layout), config.federation.quorum
    if run is None:
        return asked or len(config.federation.participants)
    # Once the run has begun, a participant that cannot take part does not stop the others.
    return 1 if is_finished(run, config) else max(asked, config.fewest_uploads)


def untold(layout: Layout, run: Run) -> set[str]:
    """Names of the participants that have not received the result of a finished run."""
    revoked = read_revocations(layout.revoked).names
    return run.manifest.clients.keys() - _told(layout, run) - revoked


def _told(layout: Layout, run: Run) -> set[str]:
    if not layout.told.exists():
        return set()
    tree = parse_json(layout.told, read(layout.told))
    same = (tree["run"], tree["round"]) == (run.manifest.run, run.manifest.round)
    return set(tree["told"]) if same else set()


def _federation(layout: Layout, config: Config, fleet: FlareFleet, fewest: int) -> Federation:
    listener = _Boundary(layout, fleet)
    if (layout.run / "state").is_dir():
        return Federation.resume(
            layout.run,
            rounds=config.train.rounds,
            select=fleet.select,
            fleet=lambda simulation, store: fleet,
            listener=listener,
        )
    return Federation(
        config,
        out=layout.run,
        select=fleet.select,
        fleet=lambda simulation, store: fleet,
        listener=listener,
        fewest=fewest,
    )
