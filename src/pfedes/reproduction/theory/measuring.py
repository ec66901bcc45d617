"""What the paper's theory assumes and claims, measured on a run that is on disk.

Nothing is trained again: a client's phase 1 of every round is replayed from its stored state, with
the stored extractor and the same batches, and must end in the state that was stored.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from pfedes.config import Config
from pfedes.core.client import Client
from pfedes.core.context import Context
from pfedes.core.payload import whole
from pfedes.core.protocol import Task
from pfedes.core.samples import Batch
from pfedes.core.training import Learner, fit, frozen, mixes_samples
from pfedes.data.dataset import Progress, silent
from pfedes.errors import ConfigError, ModelError, StoreError, unknown
from pfedes.fleet.client_host import host_of
from pfedes.fleet.serial import with_threads
from pfedes.methods.pfedes import PFedES, enhanced_once, model_loss
from pfedes.reproduction.theory.bounds import Curvature, LocalWork, Measurements, Point
from pfedes.reproduction.theory.gradients import (
    BatchView,
    Trajectory,
    gradients,
    largest_curvature,
    mean_losses,
)
from pfedes.results.run import Run
from pfedes.store.client_store import Version

PLAIN_SGD: Mapping[str, Any] = {
    "train.momentum": 0.0,
    "train.weight_decay": 0.0,
    "train.clip": 0.0,
    "train.augment": False,
}
"""What the theory assumes of a run; `runtime.keep_rounds` must be at least `train.rounds` too."""

REPLAY_TOLERANCE = 1e-4  # of a parameter; equal builds on a CPU differ by nothing


def measure(
    run: Run, client: str, *, points: int = 16, curvatures: int = 5, progress: Progress = silent
) -> Measurements:
    """Replays a client's rounds and measures what the theory speaks of.

    At most `points` iterations of a round are measured, each at the price of about two epochs.
    Curvature is taken before so many rounds, evenly spread, each at the price of some ten.
    """
    if min(points, curvatures) < 1:
        raise ConfigError(f"points = {points}, curvatures = {curvatures}: both must be at least 1")
    replay = Replay(run, client)
    rounds = replay.rounds
    train, method = run.config.train, replay.method.config
    curved = {rounds[i] for i in _spread(len(rounds), curvatures)}
    works, path, found = [], Trajectory(), []
    with with_threads(run.config.runtime.threads):
        for done, round in enumerate(rounds):
            progress(f"measuring {client}", done, len(rounds))
            local = replay.start(round)
            views = views_of(local, train.batch_size)
            if round in curved:
                value = largest_curvature(local.client.model, views)
                found.append(Curvature(round=round, value=value))
            works.append(_measure_round(local, views, path, method.mu, points))
        path.visit(local.client.model, gradients(local.client.model, views))
    progress(f"measuring {client}", len(rounds), len(rounds))
    return Measurements(
        client=client,
        architecture=local.client.architecture,
        samples=len(local.client.train),
        batch_size=train.batch_size,
        mu=method.mu,
        eta=train.lr,
        rounds=tuple(works),
        secants=tuple(path.secants),
        bends=tuple(path.bends),
        curvatures=tuple(found),
    )


@dataclass(frozen=True)
class LocalStart:
    """A client as it was when a round began for it."""

    client: Client
    extractor: nn.Module
    ctx: Context
    stored: Version  # what it ended in


class Replay:
    """The rounds of one client of a run, each from its stored beginning."""

    def __init__(self, run: Run, client: str) -> None:
        _check_settings(run.config)
        if client not in run.manifest.clients:
            raise StoreError(unknown("client", client, run.manifest.clients))
        self.simulation = run.simulation
        method = self.simulation.method
        if not isinstance(method, PFedES) or method.config.sharing != "global":
            raise ConfigError(
                f"{run.directory}: the theory is of pFedES with method.sharing = 'global'"
            )
        self.method = method
        self.run = run
        self.name = client
        self._host = host_of(self.simulation, run.store.clients)
        self.rounds = self._accepted_rounds()

    def start(self, round: int) -> LocalStart:
        """The client and the extractor it was sent, before the round."""
        store, ctx = self.run.store, self.simulation.context(round)
        stored = store.clients.load(self.run.manifest.run, self.name, round)
        card = self.simulation.population.card(self.name, self.method.needs)
        if round == 1:  # keeping as many rounds as there are does not keep round 0
            state = self.method.start([card], self.simulation.context(0))
        else:
            state = store.server_state(store.manifest(round - 1))
        download = self.method.download(state, card, ctx)
        if download.digest() != stored.task["download"]:
            raise StoreError(f"{self.name} was sent another extractor in round {round}")
        base = whole(stored.task["base"])
        client = self._host.restore(Task(self.run.manifest.run, self.name, round, base, download))
        _check_model(client.model, client.architecture)
        extractor = self.method.extractors.new(client.shape)
        extractor.load_state_dict(download.tensors)
        return LocalStart(client, extractor, ctx, stored)

    def _accepted_rounds(self) -> list[int]:
        """The rounds this client worked in; all of them must still be there."""
        kept, last = self.run.store.rounds(), self.run.manifest.round
        if missing := set(range(1, last + 1)) - set(kept):
            raise StoreError(
                f"{self.run.directory} no longer has round {min(missing)}: "
                f"the run needs runtime.keep_rounds of at least {last}"
            )
        standings = {r: self.run.store.manifest(r).clients[self.name] for r in range(1, last + 1)}
        rounds = [round for round, standing in standings.items() if standing.version == round]
        if not rounds:
            raise StoreError(f"{self.name} worked in no round of {self.run.directory}")
        return rounds


def views_of(local: LocalStart, batch_size: int) -> list[BatchView]:
    """The client's samples in batches of the run's size, dealt at random once for a round."""
    client = local.client
    order = local.ctx.streams.torch("theory", round=local.ctx.round, client=client.name)
    with torch.no_grad():
        return [
            BatchView(batch.x, local.extractor(batch.x), batch.y)
            for batch in client.train.shuffled(batch_size, order)
        ]


def _measure_round(
    local: LocalStart, views: Sequence[BatchView], path: Trajectory, mu: float, points: int
) -> LocalWork:
    client, extractor, ctx = local.client, local.extractor, local.ctx
    iterations = ctx.train.epochs * math.ceil(len(client.train) / ctx.train.batch_size)
    stride = math.ceil(iterations / points)
    measured: list[Point] = []
    steps = itertools.count()

    def watched_loss(batch: Batch) -> Tensor:
        if (step := next(steps)) % stride == 0:
            here = gradients(client.model, views)
            measured.append(here.point(step))
            path.visit(client.model, here)
        return model_loss(client.model, extractor, batch, mu)

    with frozen(extractor):
        fit(
            client,
            {"model": Learner(client.model, ctx.train.lr)},
            watched_loss,
            epochs=ctx.train.epochs,
            ctx=ctx,
            beside=enhanced_once(client, extractor, ctx),
        )
    raw_after, enhanced_after = mean_losses(client.model, views)
    return LocalWork(
        round=ctx.round,
        iterations=iterations,
        points=tuple(measured),
        raw_loss_after=raw_after,
        enhanced_loss_after=enhanced_after,
        replay_distance=_distance(client, local),
    )


def _distance(client: Client, local: LocalStart) -> float:
    """How far the replay ended from the stored state; far is an error."""
    distance = max(
        float((tensor.double() - local.stored.state[name].double()).abs().max())
        for name, tensor in client.state().items()
    )
    if not distance <= REPLAY_TOLERANCE:
        raise StoreError(
            f"{client.name}: the replay of round {local.ctx.round} ends {distance:.3g} away from "
            "the state that was stored: other data, another torch, or another program made it"
        )
    return distance


def _check_settings(config: Config) -> None:
    train = config.train.model_dump()
    wrong = [
        f"{key} = {train[key.partition('.')[2]]!r} (must be {value!r})"
        for key, value in PLAIN_SGD.items()
        if train[key.partition(".")[2]] != value
    ]
    if wrong:
        raise ConfigError(f"the theory is of plain SGD, the run was not: {', '.join(wrong)}")


def _check_model(model: nn.Module, architecture: str) -> None:
    if mixes_samples(model) or any(isinstance(m, _DropoutNd) and m.p for m in model.modules()):
        raise ModelError(
            f"{architecture} normalises by batches or drops units at random: "
            "its loss is not a mean over samples, of which the theory speaks"
        )


def _spread(count: int, wanted: int) -> list[int]:
    """So many of the numbers below count, evenly from the first to the last."""
    chosen = min(count, wanted)
    return [round(i * (count - 1) / max(1, chosen - 1)) for i in range(chosen)]
