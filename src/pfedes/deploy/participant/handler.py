"""The participant's side of a federation, whatever carries its messages.

The coordinator is not trusted: its configuration is read key by key, the participant must have
consented to methods and named functions, and only what is on the participant's own list leaves.
"""

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pfedes.config import Config, validate
from pfedes.config.federation import NETWORK, FederationConfig
from pfedes.config.limits import at_most
from pfedes.config.participant import Participant
from pfedes.core.device import device_of
from pfedes.core.measures import Metric
from pfedes.core.payload import Payload, under
from pfedes.core.protocol import (
    LAST_ROUND,
    MEASURES,
    REPLY_META,
    STAYS,
    Failure,
    FailureCode,
    Reply,
    Scored,
    Task,
)
from pfedes.core.scores import Scores
from pfedes.deploy.participant.standing import Measured, ParticipantRecord
from pfedes.deploy.participant.state import ParticipantState
from pfedes.deploy.participant.sum_part import Identity, SumPart
from pfedes.deploy.sum_messages import MASK, OPEN, asked_for
from pfedes.deploy.versions import check_versions, own_versions
from pfedes.errors import ConfigError, DamageError, DiskError, PfedesError, StoreError, WireError
from pfedes.fleet.messages import Answer, from_answer, to_task
from pfedes.fleet.workers import Worker, insist
from pfedes.methods import METHODS
from pfedes.models.precision_speed import warn_if_slow
from pfedes.privacy.config import PrivacyConfig
from pfedes.store.client_store import Version
from pfedes.store.environment import environment

log = logging.getLogger(__name__)

REFUSED: FailureCode = "refused"
TOLD: frozenset[FailureCode] = frozenset({"missing base", REFUSED})
"""All that a coordinator hears of a failure, or that it is one: its text may name files or data."""

AMONG_PROCESSES = {"log", "code"}
"""Metadata of messages between processes, which never leave."""

LONGEST = 2**18
"""Characters of a configuration: thousands of classes and participants."""

TAKEN = {"seed", "method", "train", "evaluate", "models", "federation", "privacy"}
"""The sections of a coordinator's configuration that are taken over; the rest is one's own.

How uploads are combined is the server's affair.
"""


class ParticipantHandler:
    """Answers a coordinator's messages for one participant."""

    def __init__(
        self,
        participant: Participant,
        agreed: FederationConfig,
        promised: PrivacyConfig = PrivacyConfig(),  # noqa: B008 (frozen)
        identity: Identity | None = None,
    ) -> None:
        """`agreed` are the terms that the participant saw when it joined, `promised` the privacy.

        A secure sum needs its `identity`.
        """
        self.participant = participant
        self.agreed = agreed
        self.promised = promised
        self.seat = ParticipantState(Path(participant.state))
        self._sums: SumPart | None = None
        if promised.secure_sum and identity is not None:
            place = self.seat.state / "sum"
            least = max(promised.least, participant.limits.co_participants + 1)
            self._sums = SumPart(participant, identity, least, place)
        self._worker: Worker | None = None
        self._terms = Config()
        self._is_enrolled = False
        self._sends_parameters = False
        self._metric: Metric = "accuracy"

    def handle(self, message: Payload) -> Payload:
        """The answer to a message: a card, an upload, scores, or that there is none."""
        kind = str(message.meta.get("kind"))
        try:
            answer = self._answer(kind, message)
        except DiskError as error:
            answer = error
        except PfedesError as error:
            answer = Failure(self.participant.name, f"{REFUSED}: {error}", code=REFUSED)
        payload = self._leaving(answer)
        if kind == "enroll":  # also where it refuses: the coordinator learns from them, why
            payload = Payload(payload.tensors, payload.meta | under("up/", own_versions()))
        self.seat.log_sent(kind, payload)
        return payload

    def stop(self) -> None:
        """Ends the training process. What is not committed is done again when it is asked for."""
        if self._worker is not None:
            self._worker.stop()

    def _answer(self, kind: str, message: Payload) -> Answer:
        if message.meta.get("client") != self.participant.name:
            raise WireError(f"a message for {message.meta.get('client')!r:.60}")
        if kind == "enroll":
            for note in check_versions(message.meta, "the coordinator"):
                log.warning("%s", note)
            return self._enroll(str(message.meta.get("config")))
        if kind == "hello":  # whether it is still at work: no longer, or it would not hear this
            return Reply(self.participant.name, Payload({}, {"noted": 0}))
        if kind in (MASK, OPEN) and self._sums is not None:
            return self._sums.answer(kind, message, self.seat.clients)
        if kind not in ("answer", "score", "notice"):
            raise WireError(f"a message of an unknown kind, {kind!r:.40}")
        task = _task(message)
        if self._worker is None or not self._is_enrolled:
            raise StoreError("a task came before the terms of the federation")
        record = self._record_for(task)
        if kind == "score":
            if self.promised.metadata == "none":
                raise WireError("scores stay here: privacy.metadata is 'none'")
            return self._scored(task, record, insist(self._worker, kind, task))
        record = self._learned(task, record)
        if kind == "notice":
            return self._noticed(task, record, self._worker)
        self._check_account(task)
        self.seat.write_record(record)
        answer = insist(self._worker, kind, task)
        if isinstance(answer, Reply):
            self._tidy(task)
            self.seat.answers.add(task, answer.payload)
            self.seat.write_last(task.download)
            answer = replace(answer, payload=self._without_own(answer.payload))
            if self._sums is not None:
                answer = self._sums.in_place_of(answer, asked_for(self._terms, task))
        return answer

    def _check_account(self, task: Task) -> None:
        """Refuses a task beyond what was agreed on, over all runs that this directory knows."""
        limits, answers = self.participant.limits, self.seat.answers.all()
        if any(answer.is_for(task) for answer in answers):
            return
        bound = at_most("rounds", "rounds answered", len(answers) + 1, limits.rounds)
        if not bound.is_kept:
            raise WireError(str(bound))
        if self._sends_parameters and (last := self.seat.last()) is not None:
            limits.check_change(task.download, last)

    def _without_own(self, reply: Payload) -> Payload:
        """A reply without what stays by `privacy.metadata`, and without the plain digest."""
        told = self.promised.metadata
        meta = {
            key: value
            for key, value in reply.meta.items()
            if key not in STAYS[told] and (key in REPLY_META or told == "all")
        }
        if "state" in meta:
            meta["state"] = self.seat.answers.keyed(str(meta["state"]))
        return Payload(reply.tensors, meta)

    def _enroll(self, text: str) -> Answer:
        if len(text) > LONGEST:
            raise ConfigError(f"a configuration of {len(text):,} characters, {LONGEST:,} are read")
        try:
            given = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"the coordinator's configuration is not TOML: {error}") from None
        config = own_config(given, self.participant)
        terms = config.federation.model_dump(exclude=NETWORK)
        if terms != self.agreed.model_dump(exclude=NETWORK):
            raise ConfigError(
                "the terms differ from those of your kit: ask the coordinator for a new kit, "
                "and read it before you join again"
            )
        if not config.privacy.keeps(self.promised):
            raise ConfigError(
                "[privacy] differs from that of your kit: ask the coordinator for a new kit, "
                "and read it before you join again"
            )
        self._terms = config  # as the coordinator has them, with its seed
        if self.participant.own_seed:
            config = config.model_copy(update={"seed": self.seat.own_seed()})
        self._check_seed(config.seed)
        self.stop()
        self._worker = Worker(config.to_toml(), self.seat.clients.root)
        enrolling = Task("", self.participant.name, 0, 0, Payload())
        answer = insist(self._worker, "enroll", enrolling)
        self._is_enrolled = isinstance(answer, Reply)
        self._metric = self.participant.metric or config.evaluate.metric
        self._sends_parameters = METHODS[config.method.name](config.method).averages_parameters
        if isinstance(answer, Reply):  # otherwise nothing of the task is stored
            meta = dict(answer.payload.meta)
            self._worker.expect(str(meta.pop("data")))  # stays here
            answer = replace(answer, payload=Payload({}, meta))
            self.seat.write_config(config)
            warn_if_slow(config.precisions, device_of(self.participant.device))
        return answer

    def _check_seed(self, seed: int) -> None:
        """Refuses another seed in the middle of a run: samples that were trained on would test."""
        record = self.seat.record()
        if record is None or not record.run or record.finished:
            return
        before = self.seat.config
        is_own = self.participant.own_seed or before.participants[0].own_seed
        if is_own and seed != before.seed:
            raise ConfigError(
                "own_seed cannot change during a run, and state/own.seed must be the one that it "
                "began with"
            )

    def _record_for(self, task: Task) -> ParticipantRecord:
        """Where it stands in the task's run, unless the task would go back there."""
        record = self.seat.record() or ParticipantRecord(about=_about())
        if not task.run:
            return record
        if record.run != task.run:
            self._check_runs(task.run, record)
            record = record.turned_to(task.run, _about())
        # Who lost the accepted version, or has it damaged, may start from an older one.
        back = task.base < record.accepted and self._stored(task.run, record.accepted) is not None
        if back and not self.participant.rollback:
            raise StoreError(
                f"round {task.round} would go back from version {record.accepted} to {task.base}: "
                "participant.toml does not say rollback = true"
            )
        # A federation that was finished may continue.
        heard = {"round": max(record.round, task.round), "finished": False}
        return record.model_copy(update=heard).judged_by(self._metric)

    def _check_runs(self, run: str, record: ParticipantRecord) -> None:
        """Refuses more runs than `limits.runs`: each leaves files, even without training."""
        known = {earlier.run for earlier in (*record.earlier, record) if earlier.run}
        known |= {answer.run for answer in self.seat.answers.all()}
        bound = at_most("runs", "runs", len(known | {run}), self.participant.limits.runs)
        if run not in known and not bound.is_kept:
            raise WireError(str(bound))

    def _learned(self, task: Task, record: ParticipantRecord) -> ParticipantRecord:
        """What a task tells that continues from its base: that version the coordinator accepted.

        One that only measures tells no such thing: the round is not committed yet.
        """
        if task.base != record.accepted and (stored := self._stored(task.run, task.base)):
            return _accepted(record, task.base, stored.scores)
        return record

    def _stored(self, run: str, version: int) -> Version | None:
        """A version, if it is here and whole."""
        try:
            return self.seat.clients.load(run, self.participant.name, version)
        except DamageError:
            return None

    def _scored(self, task: Task, record: ParticipantRecord, answer: Answer) -> Answer:
        if isinstance(answer, Scored):
            if task.base == 0 and not (task.run and record.before):
                record = record.model_copy(update={"before": answer.scores})
            if task.run:
                self.seat.write_measured(_measured(record, task, answer.scores), task.download)
            else:
                self.seat.write_record(record)
        return answer

    def _noticed(self, task: Task, record: ParticipantRecord, worker: Worker) -> Answer:
        """The last word: what was accepted, and what the model needs besides."""
        answer = insist(worker, "notice", task)
        if isinstance(answer, Reply):
            # Nobody else asks how the model does that stays here in the end.
            scored = insist(worker, "score", task)
            if isinstance(scored, Scored):
                record = _measured(record, task, scored.scores)
                self.seat.write_measured(record, task.download)
            last = {"finished": True, "round": task.round}
            self.seat.write_record(record.model_copy(update=last))
            if self._sums is not None:
                self._sums.forget(task.run)
            log.info("the federation is finished; version %d was accepted", task.base)
        return answer

    def _tidy(self, task: Task) -> None:
        """Removes old versions of this run, except those that a model still needs."""
        record, name = self.seat.record(), self.participant.name
        assert record is not None, "every task is learned from"
        versions = self.seat.clients.versions(task.run, name)
        kept = {*versions[-(self.seat.config.runtime.keep_rounds + 1) :]}
        kept |= {record.accepted, record.best}
        kept |= {used.version for used in (record.measured, record.best_measured) if used}
        self.seat.clients.discard(task.run, name, set(versions) - kept)

    def _leaving(self, answer: Answer) -> Payload:
        """The message that leaves: without a log, and of a failure only its code."""
        if isinstance(answer, DiskError):
            log.error("%s", answer)
            answer = Failure(self.participant.name, "failed")
        if isinstance(answer, Failure):
            log.warning("no answer: %s", answer.reason)
            answer = replace(answer, reason=answer.code if answer.code in TOLD else "failed")
        payload = from_answer(answer, "")
        stays = set(AMONG_PROCESSES)
        if not tells_measures(self.participant, self.agreed):
            stays.add(MEASURES)
        kept = {key: value for key, value in payload.meta.items() if key not in stays}
        return Payload(payload.tensors, kept)


def tells_measures(participant: Participant, agreed: FederationConfig) -> bool:
    """Whether measures class by class leave: only if both the terms and the participant say so."""
    return agreed.measures and MEASURES in participant.share


def _accepted(record: ParticipantRecord, version: int, scores: Scores) -> ParticipantRecord:
    changed: dict[str, Any] = {"accepted": version, "after": scores}
    if (validation := scores.val_by(record.metric)) is not None and (
        validation > record.best_validation or record.best > version
    ):
        changed |= {"best": version, "best_validation": validation}
    return record.model_copy(update=changed)


def _measured(record: ParticipantRecord, task: Task, scores: Scores) -> ParticipantRecord:
    found = Measured(round=task.round, version=task.base, scores=scores)
    best, validation = record.best_measured, scores.val_by(record.metric)
    # A round that is done again counts for itself alone, as do those after it.
    if validation is not None and (
        best is None
        or best.round >= task.round
        or validation > (best.scores.val_by(record.metric) or 0)
    ):
        best = found
    return record.model_copy(update={"measured": found, "best_measured": best})


def _task(message: Payload) -> Task:
    try:
        kind, task = to_task(message)
    except KeyError as error:
        raise WireError(f"unreadable message: {error} is missing") from None
    numbers = type(task.base) is type(task.round) is int
    numbers = numbers and 0 <= task.base <= task.round <= LAST_ROUND
    # Clients are scored once before there is a run.
    if not (isinstance(task.run, str) and (task.run or kind == "score") and numbers):
        raise WireError("unreadable message: its run, round or base is impossible")
    return task


def own_config(given: Mapping[str, Any], participant: Participant) -> Config:
    """A participant's own configuration, from the coordinator's."""
    tree: dict[str, Any] = {key: value for key, value in given.items() if key in TAKEN}
    named = tree.get("method", {})
    if not isinstance(named, Mapping):
        raise ConfigError(f"method {named!r:.60} is not a table")
    method = dict(named)
    method.pop("start_from", None)  # a file of the coordinator's
    _refuse_foreign(method, participant)
    tree["method"] = method
    tree["runtime"] = {
        "fleet": "serial",
        "device": participant.device,
        "threads": participant.threads,
        "report": False,
    }
    tree["participants"] = [participant]
    return validate(tree)


def _refuse_foreign(method: Mapping[str, Any], participant: Participant) -> None:
    """Over a network only built-in names resolve, and functions that one named oneself."""
    if str(method.get("name")) not in METHODS:
        raise ConfigError(f"method {method.get('name')!r:.60} is not built in")
    for key, value in method.items():
        # Whatever could name a function, well or badly: no value of ours has a colon in it.
        foreign = isinstance(value, str) and ":" in value
        if foreign and participant.consents.get(key) != value:
            raise ConfigError(f"no consent to method.{key} = {value!r:.60}, see [consents]")


def _about() -> dict[str, Any]:
    """The participant's versions; without the command and the machine."""
    kept = ("pfedes", "commit", "torch_build")
    return {key: value for key, value in environment().items() if key in kept}
