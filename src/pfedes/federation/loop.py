"""The round loop: one for every method and every fleet."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from pfedes.config import Config, configure, stored_config
from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.payload import State
from pfedes.core.protocol import Fleet, Task
from pfedes.errors import (
    DamageError,
    MethodError,
    StoreError,
)
from pfedes.federation.admission import Admission
from pfedes.federation.directory import free_directory, refuse_if_taken
from pfedes.federation.estimate import is_big, plan_of
from pfedes.federation.evaluation import evaluated, first_scores, in_digits
from pfedes.federation.failed_run import (
    blaming,
    command_that_continues,
    payload_of,
    refuse_a_broken_method,
    resumable,
)
from pfedes.federation.ledger import Ledger
from pfedes.federation.listener import Listener
from pfedes.federation.release import charge, new_state, prospect_of, summed
from pfedes.fleet import make_fleet
from pfedes.fleet.early import dismiss
from pfedes.fleet.serial import with_threads
from pfedes.methods.base import in_one_line
from pfedes.methods.contract import check_contract
from pfedes.models.precision_speed import warn_if_slow
from pfedes.population.simulation import Simulation
from pfedes.report.output import write_results
from pfedes.results.run import Run, check_federation
from pfedes.results.summary import Row
from pfedes.store.client_store import ClientStore
from pfedes.store.lock import locked
from pfedes.store.log import noting_a_stop, run_log
from pfedes.store.manifest import Standing
from pfedes.store.run_store import RunStore
from pfedes.store.trust import check_code, code_of, contacts_of, remember

log = logging.getLogger(__name__)

Selector = Callable[[Sequence[str], int, np.random.Generator], Iterable[str]]
"""Chooses so many of the named clients."""


FleetMaker = Callable[[Simulation, ClientStore], Fleet]
"""Makes the fleet that carries a simulation's rounds to its clients."""


def uniform(names: Sequence[str], count: int, rng: np.random.Generator) -> Iterable[str]:
    """Draws clients with equal probability, without repetition."""
    return (names[index] for index in rng.choice(len(names), count, replace=False))


class Federation:
    """Trains the clients of a configuration, round by round.

    Nothing is written before `run` is called. From then on every round is committed as a whole, and
    `Federation.resume` continues after the last committed one.

    Args:
        config: What to run; `configure` builds it.
        out: The run directory to create; by default a new one below `runs/`.
        select: Chooses the clients of a round from their names, the number to choose and a random
            generator.
        fleet: Creates the fleet that trains clients, from the simulation and the clients' store.
        listener: Is told about the progress of the run.
        fewest: Number of clients that must be there in round 1; by default all.

    Example:
        ```python
        run = Federation(configure(clients=5, rounds=3)).run()
        run.summary["mean_accuracy"]
        ```
    """

    def __init__(
        self,
        config: Config,
        *,
        out: Path | str | None = None,
        select: Selector = uniform,
        fleet: FleetMaker = make_fleet,
        listener: Listener | None = None,
        fewest: int | None = None,
    ) -> None:
        self.config = config.settled()
        name = f"{config.method.name}-{config.data_name}"
        self.directory = free_directory(name) if out is None else Path(out)
        self.select = select
        self.fleet = fleet
        self.listener = listener or Listener()
        self.fewest = fewest
        self._resumed: RunStore | None = None
        self._from_round: int | None = None

    @classmethod
    def resume(
        cls,
        directory: Path | str,
        *,
        rounds: int | None = None,
        from_round: int | None = None,
        cluster: str | None = None,
        tls: Path | str | None = None,
        data_dir: Path | str | None = None,
        trust_code: bool = False,
        select: Selector = uniform,
        fleet: FleetMaker = make_fleet,
        listener: Listener | None = None,
    ) -> "Federation":
        """Opens a run directory to continue the run.

        Args:
            directory: The run directory.
            rounds: New total number of rounds.
            from_round: Round to go back to, which must still be kept.
            cluster: Address of a Dask scheduler to continue on.
            tls: Directory with the certificates of that cluster.
            data_dir: Directory of the data, if it has moved.
            trust_code: Whether to import models, data and methods that the run names, and to
                connect to its cluster, although no run of yours recorded them on this machine.
            select: As for a new federation.
            fleet: As for a new federation.
            listener: As for a new federation.

        Returns:
            The federation, ready to `run`.

        Raises:
            StoreError: The directory holds no run, or the run cannot be continued like this.
            DamageError: A file is damaged; the message names a round to go back to.
        """
        store = RunStore.open(Path(directory))
        file = store.directory / "config.toml"
        stored = stored_config(file)
        check_federation(store, stored)
        try:
            manifest = store.manifest(from_round)
        except DamageError as error:
            raise DamageError(f"{error}; {store.way_back()}") from None
        names = code_of(stored) | ({} if cluster else contacts_of(stored))
        check_code(manifest.run, store.directory, names, trust_code=trust_code)
        config = configure(file, rounds=rounds, cluster=cluster, tls=tls)
        if data_dir is not None:
            config = config.with_data_in(data_dir)
        remember(manifest.run, config)
        config.check_uploads(len(manifest.clients))
        done = manifest.round
        if config.train.rounds < done:
            raise StoreError(f"{directory} has done {done} rounds: --rounds must be at least that")
        federation = cls(config, out=directory, select=select, fleet=fleet, listener=listener)
        federation._resumed = store
        federation._from_round = from_round
        return federation

    def run(self) -> Run:
        """Trains all remaining rounds, writes the run directory, and returns the run.

        Raises:
            MethodError: The method cannot serve a client; raised before anything is written.
            FailedRunError: The method's code failed at the server or at every client.
            StoreError: The run directory is taken, or in use by another process.
        """
        try:
            return self._run()
        finally:
            self.listener.ended()

    def _run(self) -> Run:
        if self._resumed is None:
            refuse_if_taken(self.directory)
        # What the server computes depends on the number of threads as clients' work does.
        with run_log() as log_into, with_threads(self.config.runtime.threads):
            simulation = Simulation(self.config, self.listener.working)
            if simulation.population.is_here:
                warn_if_slow(self.config.precisions, simulation.population.device)
            with closing(self.fleet(simulation, RunStore(self.directory).clients)) as fleet:
                dismiss()  # workers that were started early and are not needed
                if (store := self._resumed) is None:
                    store = self._begin(simulation, fleet)
                continuing = self._continuing(simulation)
                with locked(store.state), resumable(continuing), noting_a_stop(continuing):
                    log_into(self.directory)
                    ledger = Ledger.reopen(
                        store,
                        self.config,
                        simulation.population.digest,
                        self._from_round,
                        self.listener.working,
                    )
                    return self._rounds(simulation, fleet, ledger)

    def _begin(self, simulation: Simulation, fleet: Fleet) -> RunStore:
        """Makes the run directory, once the method and the untrained clients were checked."""
        method, ctx = simulation.method, simulation.context(0)
        cards = fleet.enroll()
        self.config.check_uploads(len(cards))
        with blaming(method, "check", 0):
            problems = simulation.population.check(method, ctx) or method.check(cards, ctx)
        if problems:
            raise MethodError(in_one_line(problems))
        for name in simulation.population.names:
            for remark in simulation.population.remarks(name):
                log.warning("%s: %s", name, remark)
        with blaming(method, "allowed", 0):
            check_contract(method, cards, ctx)
        with blaming(method, "start", 0):
            state = payload_of(method.start(cards, ctx))
        with blaming(method, "download", 0):
            downloads = [payload_of(method.download(state, card, ctx)) for card in cards]
        tasks = [
            Task("", card.name, 0, 0, download)
            for card, download in zip(cards, downloads, strict=True)
        ]
        here = simulation.population.is_here
        if here and is_big(self.config, [card.samples for card in cards]):
            with blaming(method, "aggregate", 1):
                plan = plan_of(simulation, fleet, cards, state, tasks, self.directory)
            self.listener.planned(plan)
        if (prospect := prospect_of(simulation, cards, state, tasks)) is not None:
            self.listener.priced(prospect)
        scores, failures = first_scores(simulation, fleet, self.listener, tasks)
        if failures and len(scores) < (self.fewest or len(cards)):
            raise MethodError(f"{failures[0].client} cannot be evaluated: {failures[0].reason}")
        if failures:  # a client that is left out may join later
            cards = [card for card in cards if card.name in scores]
            self.config.check_uploads(len(cards))
            with blaming(method, "start", 0):
                state = payload_of(method.start(cards, ctx))
        population = simulation.population
        return Ledger.create(
            self.directory,
            self.config,
            population.digest,
            cards,
            state,
            scores,
            elsewhere=not here,
            kept=population.kept,
        )

    def _admit(self, simulation: Simulation, fleet: Fleet, ledger: Ledger) -> None:
        """Admits new participants: a federation may grow between two rounds."""
        method, ctx = simulation.method, simulation.context(ledger.round)
        continuing = self._continuing(simulation)
        newcomers: list[Card] = []
        for card in fleet.enroll():
            if card.name in ledger.cards:
                continue
            with blaming(method, "check", ctx.round, continuing):
                problems = method.check([*ledger.cards.values(), *newcomers, card], ctx)
            if problems:
                log.warning("%s is not admitted: %s", card.name, in_one_line(problems))
                continue
            newcomers.append(card)
        if not newcomers:
            return
        with blaming(method, "download", ctx.round, continuing):
            tasks = [
                Task(ledger.manifest.run, card.name, ledger.round, 0,
                     payload_of(method.download(ledger.state, card, ctx)))
                for card in newcomers
            ]  # fmt: skip
        # Who does not answer may come another time.
        scores, _ = first_scores(simulation, fleet, self.listener, tasks)
        ledger.admit([card for card in newcomers if card.name in scores], scores)

    def _rounds(self, simulation: Simulation, fleet: Fleet, ledger: Ledger) -> Run:
        self.listener.started(ledger.run())
        while not ledger.finished:
            if not simulation.population.is_here:
                self._admit(simulation, fleet, ledger)
            row = self._round(simulation, fleet, ledger)
            log.info("round %d %s: accuracy %s", row["round"], row["status"], in_digits(row))
            self.listener.round_done(row)
        ledger.store.remove_leftovers()
        run = ledger.run()
        write_results(run, simulation, report=self.config.runtime.report)
        self.listener.finished(run)
        return run

    def _round(self, simulation: Simulation, fleet: Fleet, ledger: Ledger) -> Row:
        began = time.perf_counter()
        method, ctx = simulation.method, simulation.context(ledger.round + 1)
        continuing = self._continuing(simulation)

        # Step 1: select clients.
        selected = sorted(self._selected(ledger, ctx))
        self.listener.round_started(ctx.round, selected)

        # Step 2: send them what the server holds.
        cards = {name: ledger.card(name) for name in selected}
        with blaming(method, "download", ctx.round, continuing):
            tasks = [
                ledger.task(card, ctx, payload_of(method.download(ledger.state, card, ctx)))
                for card in cards.values()
            ]

        # Steps 3 and 4: they work and answer; what does not pass every check is turned away.
        last = ledger.manifest.scores
        over_network = not simulation.population.is_here
        admission = Admission(tasks, cards, method, ctx, last, over_network=over_network)
        for answer in fleet.round(tasks):
            with blaming(method, "change", ctx.round, continuing):
                verdict = admission.examine(answer)
            self.listener.client_done(verdict)
        verdicts = admission.verdicts()
        if self.config.privacy.mode == "local":
            charge(ledger, ctx.round, verdicts)
        if simulation.population.is_here and ledger.round == 0:
            refuse_a_broken_method(verdicts, continuing)

        # Step 5: aggregate, unless too few uploads are left to mean anything.
        uploads = admission.accepted()
        ok = len(uploads) >= self.config.fewest_uploads
        state = ledger.state
        if ok and ctx.summed != "no":
            verdicts, state = summed(simulation, fleet, ledger, ctx, verdicts)
            ok = state is not ledger.state
        elif ok:
            with blaming(method, "aggregate", ctx.round, continuing):
                state = payload_of(new_state(simulation, ledger, ctx, tasks, uploads))
        if not state.is_finite():
            log.warning("round %d: the aggregate is not finite and is dropped", ctx.round)
            ok, state = False, ledger.state

        # Step 6: evaluate and commit.
        standings = ledger.standings(verdicts, ok)
        floats = 0
        if ok and simulation.scores_are_told and method.evaluated_after_aggregation(ctx):
            standings, floats = self._measure(simulation, fleet, ledger, standings, state, ctx)
        return ledger.commit(
            ctx.round,
            ok=ok,
            state=state,
            standings=standings,
            verdicts=verdicts,
            evaluation_floats=floats,
            server_flops=ctx.meter.total,
            seconds=time.perf_counter() - began,
        )

    def _continuing(self, simulation: Simulation) -> str:
        return command_that_continues(self.directory, here=simulation.population.is_here)

    def _selected(self, ledger: Ledger, ctx: Context) -> Iterable[str]:
        """K clients; with a privacy budget, those that still have some, the least charged first."""
        names = sorted(ledger.cards)
        count = ctx.train.selected(len(names))
        rng = ctx.streams.numpy("selection", round=ctx.round)
        if ledger.budget is None:
            return self.select(names, count, rng)
        eligible = ledger.budget.eligible(names)
        select = ledger.budget.fewest_first if self.select is uniform else self.select
        return select(eligible, min(count, len(eligible)), rng)

    def _measure(
        self,
        simulation: Simulation,
        fleet: Fleet,
        ledger: Ledger,
        standings: Mapping[str, Standing],
        state: State,
        ctx: Context,
    ) -> tuple[dict[str, Standing], int]:
        """Scores of all clients with what they would be sent now, and the floats that cost."""
        method, everyone = simulation.method, {**ledger.manifest.clients, **standings}
        with blaming(method, "download", ctx.round, self._continuing(simulation)):
            tasks = [
                Task(ledger.manifest.run, name, ctx.round, standing.version,
                     payload_of(method.download(state, ledger.card(name, standing), ctx)))
                for name, standing in everyone.items()
            ]  # fmt: skip
        last = ledger.manifest.scores
        # Who does not answer keeps its last score.
        scores, _ = evaluated(fleet, self.listener, tasks, last)
        measured = {
            name: standing.model_copy(update={"scores": scores.get(name, last[name])})
            for name, standing in everyone.items()
        }
        return measured, sum(task.download.floats for task in tasks)
