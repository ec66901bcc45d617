"""The round loop: one for every method and every fleet."""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pfedes.admission import Admission
from pfedes.client import Card, Scores
from pfedes.clientstore import ClientStore
from pfedes.config import Config, configure
from pfedes.errors import ClusterError, DamageError, DiskError, MethodError, StoreError
from pfedes.files import writing
from pfedes.fleet.base import Failure, Fleet, Task
from pfedes.fleet.serial import with_threads
from pfedes.ledger import Ledger
from pfedes.listener import Listener
from pfedes.manifest import Standing
from pfedes.methods.base import Context, Method, in_one_line
from pfedes.payload import State
from pfedes.plan import is_big, plan_of
from pfedes.recorder import Row
from pfedes.run import Run
from pfedes.runlock import locked
from pfedes.runlog import run_log
from pfedes.simulation import Simulation
from pfedes.store import RunStore

log = logging.getLogger(__name__)

Selector = Callable[[Sequence[str], int, np.random.Generator], Iterable[str]]
"""Chooses so many of the named clients."""


FleetMaker = Callable[[Simulation, ClientStore], Fleet]
"""Makes the fleet that carries a simulation's rounds to its clients."""


def uniform(names: Sequence[str], count: int, rng: np.random.Generator) -> Iterable[str]:
    """Every client with the same probability, nobody twice."""
    return (names[index] for index in rng.choice(len(names), count, replace=False))


class Federation:
    """Trains the clients of a configuration, round by round.

    Nothing is written before `run` is called. From then on a round is either committed or did not
    happen, and `Federation.resume` goes on after the last one that was.
    """

    def __init__(
        self,
        config: Config,
        *,
        out: Path | str | None = None,
        select: Selector = uniform,
        fleet: FleetMaker = Simulation.fleet,
        listener: Listener | None = None,
        fewest: int | None = None,
    ) -> None:
        """`fewest` clients must be there to begin with; all of them, unless it is given."""
        self.config = config.settled()
        data = config.data.source.partition(":")[0]
        self.directory = (
            free_directory(f"{config.method.name}-{data}") if out is None else Path(out)
        )
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
        select: Selector = uniform,
        fleet: FleetMaker = Simulation.fleet,
        listener: Listener | None = None,
    ) -> "Federation":
        """The federation of a run directory, ready to go on.

        `rounds` sets a new total; `from_round` goes back to a round that is still kept; with
        `cluster` the rest is done there, with the certificates in the directory `tls`.
        """
        store = RunStore.open(Path(directory))
        file = store.directory / "config.toml"
        config = configure(file, rounds=rounds, cluster=cluster, tls=tls)
        try:
            manifest = store.manifest(from_round)
        except DamageError as error:
            raise DamageError(f"{error}; {store.way_back()}") from None
        config.check_uploads(len(manifest.clients))
        done = manifest.round
        if config.train.rounds < done:
            raise StoreError(f"{directory} has done {done} rounds: --rounds must be at least that")
        federation = cls(config, out=directory, select=select, fleet=fleet, listener=listener)
        federation._resumed = store
        federation._from_round = from_round
        return federation

    def run(self) -> Run:
        """Does all rounds that are left and returns the run."""
        if self._resumed is None:
            refuse_if_taken(self.directory)
        # What the server computes depends on the number of threads as clients' work does.
        with run_log() as log_into, with_threads(self.config.runtime.threads):
            simulation = Simulation(self.config, self.listener.working)
            with closing(self.fleet(simulation, RunStore(self.directory).clients)) as fleet:
                if (store := self._resumed) is None:
                    store = self._begin(simulation, fleet)
                with locked(store.state), _resumable(store):
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
        if problems := simulation.population.check(method, ctx) or method.check(cards, ctx):
            raise MethodError(in_one_line(problems))
        state = method.start(cards, ctx)
        tasks = [Task("", c.name, 0, 0, method.download(state, c, ctx)) for c in cards]
        here = simulation.population.is_here
        if here and is_big(self.config, [card.samples for card in cards]):
            self.listener.planned(plan_of(simulation, fleet, tasks, self.directory))
        scores, failures = self._evaluate(fleet, tasks)
        if failures and len(scores) < (self.fewest or len(cards)):
            raise MethodError(f"{failures[0].client} cannot be evaluated: {failures[0].reason}")
        if failures:  # who is left out may come another time
            cards = [card for card in cards if card.name in scores]
            self.config.check_uploads(len(cards))
            state = method.start(cards, ctx)
        digest = simulation.population.digest
        return Ledger.create(
            self.directory, self.config, digest, cards, state, scores, elsewhere=not here
        )

    def _admit(self, simulation: Simulation, fleet: Fleet, ledger: Ledger) -> None:
        """Takes in who was not there before: a federation may grow between two rounds."""
        method, ctx = simulation.method, simulation.context(ledger.round)
        newcomers: list[Card] = []
        for card in fleet.enroll():
            if card.name in ledger.cards:
                continue
            if problems := method.check([*ledger.cards.values(), *newcomers, card], ctx):
                log.warning("%s is not admitted: %s", card.name, in_one_line(problems))
                continue
            newcomers.append(card)
        if not newcomers:
            return
        tasks = [
            Task(ledger.manifest.run, card.name, ledger.round, 0,
                 method.download(ledger.state, card, ctx))
            for card in newcomers
        ]  # fmt: skip
        scores, _ = self._evaluate(fleet, tasks)  # who does not answer may come another time
        ledger.admit([card for card in newcomers if card.name in scores], scores)

    def _rounds(self, simulation: Simulation, fleet: Fleet, ledger: Ledger) -> Run:
        self.listener.started(ledger.run())
        while not ledger.finished:
            if not simulation.population.is_here:
                self._admit(simulation, fleet, ledger)
            row = self._round(simulation, fleet, ledger)
            log.info("round %d %s: accuracy %.4f", row["round"], row["status"], row["accuracy"])
            self.listener.round_done(row)
        ledger.store.remove_leftovers()
        run = ledger.run()
        run.write_results(simulation, report=self.config.runtime.report)
        return run

    def _round(self, simulation: Simulation, fleet: Fleet, ledger: Ledger) -> Row:
        began = time.perf_counter()
        method, ctx = simulation.method, simulation.context(ledger.round + 1)

        # Step 1: select clients.
        names = sorted(ledger.cards)
        count = ctx.train.selected(len(names))
        rng = ctx.streams.numpy("selection", round=ctx.round)
        selected = sorted(self.select(names, count, rng))
        self.listener.round_started(ctx.round, selected)

        # Step 2: send them what the server holds.
        cards = {name: ledger.card(name) for name in selected}
        tasks = [
            ledger.task(card, ctx, method.download(ledger.state, card, ctx))
            for card in cards.values()
        ]

        # Steps 3 and 4: they work and answer; what does not pass every check is turned away.
        admission = Admission(tasks, cards, method, ctx)
        for answer in fleet.round(tasks):
            self.listener.client_done(admission.examine(answer))
        verdicts = admission.verdicts()

        # Step 5: aggregate, unless too few uploads are left to mean anything.
        uploads = admission.accepted()
        ok = len(uploads) >= self.config.fewest_uploads
        state = method.aggregate(ledger.state, uploads, ctx) if ok else ledger.state
        if not state.is_finite():
            log.warning("round %d: the aggregate is not finite and is dropped", ctx.round)
            ok, state = False, ledger.state

        # Step 6: evaluate and commit.
        standings = ledger.standings(verdicts, ok)
        floats = 0
        if ok and method.evaluated_after_aggregation(ctx):
            standings, floats = self._measure(fleet, ledger, standings, state, method, ctx)
        return ledger.commit(
            ctx.round,
            ok=ok,
            state=state,
            standings=standings,
            verdicts=verdicts,
            evaluation_floats=floats,
            seconds=time.perf_counter() - began,
        )

    def _measure(
        self,
        fleet: Fleet,
        ledger: Ledger,
        standings: Mapping[str, Standing],
        state: State,
        method: Method[Any],
        ctx: Context,
    ) -> tuple[dict[str, Standing], int]:
        """Scores of all clients with what they would be sent now, and the floats that cost."""
        everyone = {**ledger.manifest.clients, **standings}
        tasks = [
            Task(ledger.manifest.run, name, ctx.round, standing.version,
                 method.download(state, ledger.card(name), ctx))
            for name, standing in everyone.items()
        ]  # fmt: skip
        last = {name: standing.scores for name, standing in ledger.manifest.clients.items()}
        scores, _ = self._evaluate(fleet, tasks)  # who does not answer keeps its last score
        measured = {
            name: standing.model_copy(update={"scores": scores.get(name, last[name])})
            for name, standing in everyone.items()
        }
        return measured, sum(task.download.floats for task in tasks)

    def _evaluate(
        self, fleet: Fleet, tasks: Sequence[Task]
    ) -> tuple[dict[str, Scores], list[Failure]]:
        scores, failures = {}, []
        asked = {task.client for task in tasks}
        for done, answer in enumerate(fleet.evaluate(tasks), 1):
            if isinstance(answer, Failure):
                log.warning("%s was not evaluated: %s", answer.client, answer.reason)
                failures.append(answer)
            elif answer.client in asked:
                scores[answer.client] = answer.scores
            self.listener.working("evaluating all clients", done, len(tasks))
        return scores, failures


@contextmanager
def _resumable(store: RunStore) -> Iterator[None]:
    """A disk or a cluster that is gone ends the run, which has lost nothing by it."""
    try:
        yield
    except (DiskError, ClusterError) as error:
        raise type(error)(
            f"{error}; nothing that was committed is lost: mend that, then go on with "
            f"'pfedes resume {store.directory}'"
        ) from None


def refuse_if_taken(directory: Path) -> None:
    """A new run needs a place of its own."""
    with writing(directory):
        taken = (directory / "state").is_dir()
        used = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    if taken:
        raise StoreError(
            f"{directory} already holds a run: go on with 'pfedes resume {directory}', "
            "or choose another --out"
        )
    if used:
        raise StoreError(f"{directory} exists and is not an empty directory: choose another --out")


def free_directory(name: str) -> Path:
    """`runs/NAME`, or the first of `-2`, `-3`, ... that is not taken."""
    name = name.replace(":", "-")
    for number in itertools.count(1):
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not path.exists():
            return path
    raise AssertionError("unreachable")
