"""The state of a run. Only the ledger advances it, one committed round at a time."""

import json
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from pfedes.config import Config
from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State
from pfedes.core.protocol import Task
from pfedes.core.scores import Scores
from pfedes.data.dataset import Progress, silent
from pfedes.errors import DamageError
from pfedes.federation.admission import Verdict
from pfedes.federation.rows import client_row, round_row
from pfedes.files import publish, remove
from pfedes.privacy.budget import Budget, Release
from pfedes.privacy.config import PrivacyConfig
from pfedes.results.run import Run, is_spent
from pfedes.results.summary import Row, mean_accuracy, mean_validation
from pfedes.store.environment import environment
from pfedes.store.manifest import Extent, Manifest, MetricsFile, Standing, scores_of
from pfedes.store.run_store import (
    ACCOUNT,
    ELSEWHERE,
    RunStore,
    roster_bytes,
    roster_name,
    server_name,
)
from pfedes.store.trust import remember

log = logging.getLogger(__name__)


class Ledger:
    """The server's state, every client's standing, and the metrics, as of the last commit."""

    def __init__(self, store: RunStore, config: Config) -> None:
        self.store = store
        self.config = config
        self.manifest = store.manifest()
        self.state = store.server_state(self.manifest)
        self.cards = {card.name: card for card in store.cards(self.manifest)}
        releases, self._account = store.account(self.manifest)
        self.budget = Budget(config.privacy, releases) if config.privacy.noisy else None
        self.metric = config.metric

    @staticmethod
    def create(
        directory: Path,
        config: Config,
        data_digest: str,
        cards: Sequence[Card],
        state: State,
        scores: Mapping[str, Scores | None],
        *,
        elsewhere: bool = False,
        kept: Payload | None = None,
    ) -> RunStore:
        """A new run on disk, at round 0; `elsewhere`: its clients keep their own states.

        `kept` is what is stored of the data.
        """
        standings = {n: _untrained(scores[n]) for n in sorted(scores)}
        manifest = Manifest(
            run=secrets.token_hex(8),
            round=0,
            status="ok",
            initial_accuracy=mean_accuracy(scores_of(standings).values()),
            best_round=None,
            best_validation=None,
            roster=roster_name(roster_bytes(cards)),
            server=server_name(0),
            server_digest=state.digest(),
            metrics={},
            clients=standings,
        )
        about = {
            **environment(),
            "data": data_digest,
            "federation": config.federation_digest(),
        }
        if elsewhere:
            about["clients"] = ELSEWHERE
        if config.privacy != PrivacyConfig():
            about["privacy"] = config.privacy.model_dump(mode="json")
        files = {"config.toml": config.to_toml(), "environment.json": json.dumps(about, indent=2)}
        remember(manifest.run, config)
        return RunStore.create(directory, files, cards, state, manifest, kept)

    @classmethod
    def reopen(
        cls,
        store: RunStore,
        config: Config,
        data_digest: str,
        from_round: int | None = None,
        progress: Progress = silent,
    ) -> "Ledger":
        """The ledger of a run that continues, at its last committed round or an earlier kept one.

        The caller holds the run's lock, and has compared the configuration with the run's.
        """
        store.check_data(data_digest)
        store.check_privacy(config.privacy)
        store.check_account()
        before = store.environment()
        if before["torch_build"] != torch.__version__:
            log.warning(
                "the run began with torch %s and continues with %s: bit equality is not promised",
                before["torch_build"],
                torch.__version__,
            )
        round = store.rounds()[-1] if from_round is None else from_round
        try:
            store.verify(round, partial(progress, "checking the run's files"))
        except DamageError as error:
            raise DamageError(f"{error}; {store.way_back()}") from None
        store.go_back(round)
        store.sweep()
        store.tidy(config.runtime.keep_rounds)
        if before["federation"] != config.federation_digest():
            # It was of another form, which holds where data lay: that may be another place now.
            store.write_environment({"federation": config.federation_digest()})
        publish(store.directory / "config.toml", config.to_toml().encode())
        ledger = cls(store, config)
        for name, extent in ledger.manifest.metrics.items():
            if name != ACCOUNT:  # a release cannot be undone
                store.append(name, [], extent)
        if ledger.finished:
            store.forget_unclaimed_answers()
        else:
            remove(store.directory / "summary.json")
        return ledger

    @property
    def round(self) -> int:
        return self.manifest.round

    @property
    def finished(self) -> bool:
        done = self.manifest.ends(self.config.train.rounds, self.config.train.patience)
        return done or is_spent(self.budget, self.cards, self.config)

    def record(self, round: int, inputs: str, clients: Iterable[str]) -> None:
        """Accounts for a release, durably, before anything of it is computed or shown."""
        assert self.budget is not None
        names = tuple(sorted(clients))
        release = Release(round=round, inputs=inputs, clients=names, z=self.config.privacy.noise)
        if release not in self.budget:
            row = release.model_dump(mode="json")
            self._account = self.store.append(ACCOUNT, [row], self._account)
            self.budget.add(release)

    def card(self, name: str, standing: Standing | None = None) -> Card:
        """A client's card with the version it stands at: the committed one, unless given."""
        standing = standing or self.manifest.clients[name]
        return replace(self.cards[name], accepted=standing.version)

    def task(self, card: Card, ctx: Context, download: Payload) -> Task:
        """The client's work in this round, from its accepted version on."""
        return Task(self.manifest.run, card.name, ctx.round, card.accepted, download)

    def admit(self, cards: Sequence[Card], scores: Mapping[str, Scores | None]) -> None:
        """Adds clients that came later, untrained; the next committed round has them."""
        for card in cards:
            log.info("%s is admitted after round %d", card.name, self.round)
            self.cards[card.name] = card
        standings = {card.name: _untrained(scores[card.name]) for card in cards}
        self.manifest = self.manifest.model_copy(
            update={
                "best_validation": self._best_validation_with(standings.values()),
                "roster": self.store.write_roster(self.cards[name] for name in sorted(self.cards)),
                "clients": dict(sorted({**self.manifest.clients, **standings}.items())),
            }
        )

    def _best_validation_with(self, newcomers: Iterable[Standing]) -> float | None:
        """The best round's mean, as if the newcomers had been there then, untrained.

        Otherwise their low scores would lower every later mean: no round could be better for a
        while, and patience would run out.
        """
        best = self.manifest.best_validation
        there = [scores.val_by(self.metric) for scores in self.manifest.scores.values()]
        told = [s.scores for s in newcomers if s.scores is not None]
        new = [value for scores in told if (value := scores.val_by(self.metric)) is not None]
        count = sum(value is not None for value in there)
        return best if best is None else (best * count + sum(new)) / (count + len(new))

    def standings(self, verdicts: Iterable[Verdict], ok: bool) -> dict[str, Standing]:
        """The clients whose standing changes with this round."""
        moved = {}
        for verdict in verdicts:
            name = verdict.task.client
            if ok and verdict.status == "ok" and verdict.reply is not None:
                digest = str(verdict.reply.payload.meta.get("state", ""))
                moved[name] = _standing(verdict.reply.scores, verdict.task.round, digest)
            elif verdict.versions is not None:
                moved[name] = self._fallback(name, verdict.versions)
        return moved

    def commit(
        self,
        round: int,
        *,
        ok: bool,
        state: State,
        standings: Mapping[str, Standing],
        verdicts: Sequence[Verdict],
        evaluation_floats: int,
        server_flops: int = 0,
        seconds: float,
    ) -> Row:
        """Makes a round part of the run, whole, by the renaming of its manifest."""
        last, status = self.manifest, "ok" if ok else "failed"
        clients = {**last.clients, **standings}
        rows = [client_row(verdict, self.metric) for verdict in verdicts]
        asked = [verdict for verdict in verdicts if verdict.asked]
        row = round_row(
            *(round, status, len(asked), rows, clients),
            *(evaluation_floats, server_flops, seconds, self.metric),
        )
        validation = mean_validation(scores_of(clients).values(), self.metric)
        better = _is_best(validation, last.best_validation)
        added: dict[MetricsFile, list[Row]] = {"clients.jsonl": rows, "rounds.jsonl": [row]}
        metrics = {
            name: self.store.append(name, new, last.metrics.get(name, Extent()))
            for name, new in added.items()
        }
        if self.budget is not None:
            metrics[ACCOUNT] = self._account
        if ok:
            self.store.write_server(server_name(round), state)
        self.manifest = last.model_copy(
            update={
                "round": round,
                "status": status,
                "best_round": round if better else last.best_round,
                "best_validation": validation if better else last.best_validation,
                "server": server_name(round) if ok else last.server,
                "server_digest": state.digest() if ok else last.server_digest,
                "metrics": metrics,
                "clients": clients,
            }
        )
        self.store.write_manifest(self.manifest)
        self.state = state
        self._tidy(asked)
        return row

    def run(self) -> Run:
        """The run as it can be read now."""
        return Run(self.store)

    def _tidy(self, verdicts: Iterable[Verdict]) -> None:
        self.store.tidy(self.config.runtime.keep_rounds)
        for verdict in verdicts:
            name = verdict.task.client
            if self.manifest.clients[name].version != self.round:
                # Turned away: the client is at its base again.
                self.store.clients.discard(self.manifest.run, name, [self.round])

    def _fallback(self, name: str, versions: Sequence[int]) -> Standing:
        """The standing of a client that lost its accepted version: the newest known to both."""
        standing = self.manifest.clients[name]
        known = {0: "", **dict.fromkeys(self._accepted_elsewhere(name), "")}
        for round in self.store.rounds():
            # Who came later is not in the manifests of before.
            if (earlier := self.store.manifest(round).clients.get(name)) is not None:
                known[earlier.version] = earlier.digest
        version = max(v for v in known if v == 0 or v in versions)
        log.warning("%s lost its version %d: back to %d", name, standing.version, version)
        return standing.model_copy(update={"version": version, "digest": known[version]})

    def _accepted_elsewhere(self, name: str) -> set[int]:
        """Every version that was accepted of a client which keeps its states itself.

        One that was restored from a copy may have older versions than the manifests that are kept.
        """
        if not self.store.is_elsewhere:
            return set()
        rows = self.store.rows("rounds.jsonl", self.manifest)
        succeeded = {row["round"] for row in rows if row["status"] == "ok"}
        return {
            row["round"]
            for row in self.store.rows("clients.jsonl", self.manifest)
            if row["client"] == name and row["status"] == "ok" and row["round"] in succeeded
        }


def _untrained(scores: Scores | None) -> Standing:
    return _standing(scores, 0, "")


def _standing(scores: Scores | None, version: int, digest: str) -> Standing:
    local = scores.plain if scores is not None else None
    return Standing(version=version, digest=digest, scores=scores, local=local)


def _is_best(validation: float | None, best_so_far: float | None) -> bool:
    """Whether a round is the best: by the metric of `[evaluate]` on validation data, never test."""
    return validation is not None and (best_so_far is None or validation > best_so_far)
