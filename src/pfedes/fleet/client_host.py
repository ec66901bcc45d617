"""The client's side of the protocol, the same in every fleet.

A host answers tasks for the clients that live with it: it restores a client at the version the
task starts from, lets the method work, and commits state and answer together before it answers.
"""

import json
import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from pfedes.config.earlier_digests import earlier_local_digest
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.flops import FlopMeter
from pfedes.core.payload import Payload, Value
from pfedes.core.protocol import (
    SUMMAND,
    Failure,
    FailureCode,
    Reply,
    Scored,
    Task,
)
from pfedes.errors import (
    DamageError,
    DiskError,
    MethodError,
    PfedesError,
    RefusedError,
    TrainingError,
    WireError,
    unknown,
)
from pfedes.files import Buffer
from pfedes.fleet.allow_list import check_consent, check_download, check_reply, told_card
from pfedes.imports import kind_text_and_place
from pfedes.methods.base import Method, in_one_line
from pfedes.methods.contract import check_kept, check_metadata, upload_of
from pfedes.population.base import Population
from pfedes.population.simulation import Simulation
from pfedes.privacy.mechanism import Mechanism, SimulatedPrivacy
from pfedes.privacy.own import OwnPrivacy
from pfedes.store.client_store import ClientStore, Version

log = logging.getLogger(__name__)


class MissingBaseError(DamageError):
    """The task starts from a version that is not here, or is damaged."""

    def __init__(self, versions: list[int], why: str = "") -> None:
        super().__init__(f"missing base: {why}" if why else "missing base")
        self.versions = tuple(versions)


class ClientHost:
    """Answers tasks for the clients of a population."""

    def __init__(
        self,
        population: Population,
        method: Method[Any],
        context: Callable[[int], Context],
        store: ClientStore,
        settings: str,
        earlier_settings: str = "",
        privacy: OwnPrivacy | SimulatedPrivacy | None = None,
        summing: Callable[[str], Mechanism] | None = None,
    ) -> None:
        """`privacy` is what clips, drowns and counts changes before they leave, where it is needed;
        `summing` gives what makes them whole numbers in a run, to be added up.

        `settings` identifies what shapes a client's work: other settings, another answer.

        `earlier_settings` is what earlier versions of pfedes recorded for the same.
        """
        self.population = population
        self.method = method
        self.context = context
        self.store = store
        self.settings = settings
        self.earlier_settings = earlier_settings
        self.privacy = privacy
        self.summing = summing
        self._resident: dict[str, nn.Module] = {}
        self._known_flops: dict[Hashable, Fraction] = {}

    def cards(self) -> list[Card]:
        """The cards of all clients, with no more on them than the method needs."""
        return self.population.cards(self.method.needs)

    def introduce(self, task: Task) -> Reply | Failure:
        """A client's card, unless it cannot or will not take part."""
        try:
            ctx = self.context(0)
            card = self.population.card(task.client, self.method.needs)
            check_consent(self.population, self.method, card, ctx)
            if self.privacy is not None:
                self.privacy.check(task.client, task.run, task.round)
            if problems := self.population.check(self.method, ctx):
                raise MethodError(in_one_line(problems))
            told = asdict(told_card(card, ctx))
            return Reply(task.client, Payload({}, {"card": json.dumps(told)}))
        except Exception as error:  # custom models and methods may raise anything
            return _failure(task, error)

    def answer(self, task: Task) -> Reply | Failure:
        """The client's work in a round, done once however often it is asked for."""
        try:
            return self._answer(task)
        except MissingBaseError as missing:
            return Failure(task.client, str(missing), missing.versions, "missing base")
        except DiskError:
            raise  # the disk is everybody's
        except Exception as error:  # custom models and methods may raise anything
            return _failure(task, error)

    def answered(self, task: Task) -> Reply | None:
        """The answer given before, if this very task was answered and the file is whole."""
        return self._answered(task, self.store.versions(task.run, task.client))

    def take_in(self, task: Task, data: Buffer) -> None:
        """Commits the new state that the client's host on another machine has sent."""
        self._make_way(task, self.store.versions(task.run, task.client))
        self.store.put(task.run, task.client, task.round, data)

    def adopt(self, task: Task, attempt: str) -> None:
        """Commits what the client's host on another machine wrote beside its place."""
        self._make_way(task, self.store.versions(task.run, task.client))
        self.store.adopt(task.run, task.client, task.round, attempt)

    def score(self, task: Task) -> Scored | Failure:
        """The client's scores at its base version; changes nothing."""
        try:
            ctx = self.context(task.round)
            self._check(task, ctx, task.base <= task.round)
            client = self.restore(task)
            model = personal_model(self.method, client, self._received(task), ctx)
            return Scored(task.client, client.score(model))
        except Exception as error:  # custom models and methods may raise anything
            return _failure(task, error)

    def heed(self, task: Task) -> Reply | Failure:
        """That the run has ended, with what the client's model needs from now on; changes nothing.

        Whoever keeps the download does so only if it passes here.
        """
        try:
            self._check(task, self.context(task.round), task.base <= task.round)
            return Reply(task.client, Payload({}, {"noted": task.round}))
        except Exception as error:  # custom models and methods may raise anything
            return _failure(task, error)

    def _answer(self, task: Task) -> Reply:
        ctx = self.context(task.round)
        self._check(task, ctx, task.base < task.round)
        if (consent := self.population.consent(task.client)) is not None:
            ctx = consent.limits.cautious(ctx)
        versions = self.store.versions(task.run, task.client)
        if (before := self._answered(task, versions)) is not None:
            return before
        if self.privacy is not None:
            self.privacy.check(task.client, task.run, task.round)

        client = self._at_base(task)
        began = time.perf_counter()
        with ctx.streams.ambient("client", round=task.round, client=task.client):
            if task.base == 0:
                self.method.prepare(client, ctx)
            upload = upload_of(self.method.client_round(client, self._received(task), ctx))
            scores = client.score(self.method.personal(client, None, ctx))
        check_metadata(self.method, upload.meta)
        check_kept(client.kept)
        state = client.state()
        _check_finite(client, ctx)
        # Copies: the model they may be part of is passed to the next client.
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in upload.tensors.items()}
        if self.privacy is not None:
            sent = task.download.tensors
            tensors = self.privacy.leaving(task.run, task.client, task.round, tensors, sent)
        if self.summing is not None:
            summand = self.summing(task.run).summand(
                task.client, task.round, tensors, task.download.tensors, len(client.train)
            )
            tensors = {SUMMAND: torch.from_numpy(summand)}
        reply = Payload(
            tensors,
            {
                "run": task.run,
                "round": task.round,
                "base": task.base,
                "samples": len(client.train),
                "loss": upload.loss,
                **scores.counts,
                "flops": client.meter.total,
                "seconds": time.perf_counter() - began,
                "state": Payload(state).digest(),
                **upload.meta,
            },
        )
        check_reply(self.population, self.method, task.client, reply, ctx)
        self._make_way(task, versions)
        self.store.commit(Version(state, self._identity(task), reply, scores.measures))
        return Reply(task.client, reply, scores.measures)

    def _make_way(self, task: Task, versions: list[int]) -> None:
        newer = [version for version in versions if version > task.base]
        self.store.discard(task.run, task.client, newer)
        table = self.population.preprocess(task.client) if task.base == 0 else None
        if table is not None:  # before the first version: no model is without it
            self.store.keep_preprocess(task.run, task.client, table)

    def _answered(self, task: Task, versions: list[int]) -> Reply | None:
        if task.round not in versions:
            return None
        try:
            stored = self.store.load(task.run, task.client, task.round)
        except DamageError as error:
            log.warning("%s is trained again: %s", task.client, error)
            return None
        asked = self._identity(task)
        known = (asked, {**asked, "settings": self.earlier_settings})
        return Reply(task.client, stored.reply, stored.measures) if stored.task in known else None

    def restore(self, task: Task) -> Client:
        """The client at the version that a task starts from, ready to be used."""
        client = self._at_base(task)
        if task.base == 0:
            # A client that was never selected gets what it would keep from its first selection on.
            ctx = self.context(task.round)
            with ctx.streams.ambient("client", round=task.round, client=task.client):
                self.method.prepare(client, ctx)
        return client

    def _at_base(self, task: Task) -> Client:
        state = self._base(task) if task.base else None  # initial weights come from the seed
        architecture = self.population.architectures[task.client]
        # What is loaded need not be initialised first: one model of each architecture stays.
        resident = self._resident.get(architecture) if state is not None else None
        client = self.population.client(task.client, resident)
        if _is_its_state(client.model):
            self._resident[architecture] = client.model
        client.meter = FlopMeter(self._known_flops)
        if state is not None:
            client.load(state)
        return client

    def _identity(self, task: Task) -> dict[str, Value]:
        return {**task.identity(), "settings": self.settings}

    def _received(self, task: Task) -> Payload:
        """The download, where the client's model is."""
        down = {n: t.to(self.population.device) for n, t in task.download.tensors.items()}
        return Payload(down, task.download.meta)

    def _base(self, task: Task) -> dict[str, Tensor]:
        versions = self.store.versions(task.run, task.client)
        if task.base not in versions:
            raise MissingBaseError(versions)
        try:
            return self.store.load(task.run, task.client, task.base).state
        except DamageError as error:
            intact = [version for version in versions if version != task.base]
            raise MissingBaseError(intact, str(error)) from None

    def _check(self, task: Task, ctx: Context, in_order: bool) -> None:
        """Nothing is touched for a task that is not on the allow-list."""
        if task.client not in self.population.sizes:
            raise WireError(unknown("client", task.client, self.population.names))
        if not (in_order and task.base >= 0):
            raise RefusedError(
                f"download refused: base {task.base} is not valid in round {task.round}"
            )
        check_download(self.population, self.method, task, ctx)


def _failure(task: Task, error: Exception) -> Failure:
    """The failure of a client. Its state on disk does not change."""
    if isinstance(error, PfedesError):
        return Failure(task.client, str(error), code=_code_of(error))
    log.exception("%s failed in round %d", task.client, task.round)
    return Failure(task.client, kind_text_and_place(error))


def _code_of(error: PfedesError) -> FailureCode:
    if isinstance(error, TrainingError):
        return "not finite"
    return "refused" if isinstance(error, RefusedError) else "failed"


def _is_its_state(model: nn.Module) -> bool:
    """Whether loading a state makes a model wholly another client's: no buffer is left out."""
    return {name for name, _ in model.named_buffers()} <= model.state_dict().keys()


def _check_finite(client: Client, ctx: Context) -> None:
    """The last step may have gone wrong, though every loss was finite."""
    statistics = [
        (f"{name}.{kind}", getattr(norm, kind))
        for name, norm in client.model.named_modules()
        if isinstance(norm, _NormBase) and norm.track_running_stats
        for kind in ("running_mean", "running_var")
    ]
    for name, tensor in [
        *client.model.named_parameters(),
        *statistics,
        *client.kept.items(),
    ]:
        if not bool(torch.isfinite(tensor).all()):
            raise TrainingError(
                f"{name} is no longer finite in round {ctx.round} (learning rate {ctx.train.lr:g})"
            )


def personal_model(
    method: Method[Any], client: Client, download: Payload, ctx: Context
) -> nn.Module:
    """The model by which a client is measured, given what it would be sent now."""
    after = method.evaluated_after_aggregation(ctx)
    return method.personal(client, download if after else None, ctx)


def host_of(simulation: Simulation, store: ClientStore) -> ClientHost:
    """The clients' side of a simulation, with their states in `store`."""
    settings = simulation.config.local_digest(), earlier_local_digest(simulation.config)
    privacy = _privacy_of(simulation, store)

    def mechanism(run: str) -> Mechanism:
        return privacy.mechanism(run) if isinstance(privacy, OwnPrivacy) else simulation.mechanism()

    return ClientHost(
        *(simulation.population, simulation.method, simulation.context, store),
        *settings,
        privacy=privacy,
        summing=mechanism if simulation.config.privacy.secure_sum else None,
    )


def _privacy_of(simulation: Simulation, store: ClientStore) -> OwnPrivacy | SimulatedPrivacy | None:
    """The clients' part of `[privacy]`, if any. A participant records its releases itself."""
    config, people = simulation.config.privacy, simulation.config.participants
    if simulation.over_network and people:
        (limits,) = (person.limits for person in people)
        return OwnPrivacy(
            store.root.parent,
            config,
            simulation.config.train.min_uploads,
            limits.epsilon,
            limits.delta,
        )
    return SimulatedPrivacy(simulation.mechanism()) if config.mode == "local" else None
