"""A run on disk, finished or not: its metrics and its clients' models."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from pfedes.config import Config, configure
from pfedes.data.dataset import Progress, silent
from pfedes.errors import DamageError, StoreError, unknown
from pfedes.facts import Moment
from pfedes.files import publish
from pfedes.fleet.base import Task
from pfedes.manifest import Manifest
from pfedes.payload import Payload
from pfedes.personal import Personal
from pfedes.recorder import Row, summarise
from pfedes.report.formats import listed
from pfedes.restoring import personal_at, restored
from pfedes.simulation import Simulation
from pfedes.store import RunStore


def open_run(directory: Path | str, progress: Progress = silent) -> "Run":
    """Opens a run directory for reading, also while the run goes on.

    `progress` hears of data that must be decoded again when it is needed.
    """
    store = RunStore.open(Path(directory))
    try:
        return Run(store, progress)
    except DamageError as error:
        raise DamageError(f"{error}; {store.way_back()}") from None


class Run:
    """What was committed until the moment it was opened."""

    def __init__(self, store: RunStore, progress: Progress = silent) -> None:
        self.store = store
        self._progress = progress
        self.directory = store.directory
        self.config: Config = configure(store.directory / "config.toml")
        self.manifest: Manifest = store.manifest()
        self.rounds: list[Row] = store.rows("rounds.jsonl", self.manifest)
        """A row per round."""
        self.clients: list[Row] = store.rows("clients.jsonl", self.manifest)
        """A row per asked client per round."""

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, or patience has run out."""
        return self.manifest.ends(self.config.train.rounds, self.config.train.patience)

    @property
    def environment(self) -> dict[str, Any]:
        """What the run began on."""
        return self.store.environment()

    @property
    def summary(self) -> Row:
        """The result in one object, as in `summary.json`."""
        with self.reading_rows():
            return summarise(
                method=self.config.method.name,
                dataset="their own data" if self.config.brings_own else self.config.data.source,
                seed=self.config.seed,
                targets=self.config.evaluate.targets,
                manifest=self.manifest,
                rounds=self.rounds,
                clients=self.clients,
            )

    @contextmanager
    def reading_rows(self) -> Iterator[None]:
        """Rows may come from anywhere: one without what it must have is damage, and says so."""
        try:
            yield
        except (KeyError, TypeError, ValueError) as error:
            raise DamageError(f"{self.directory}: a row of metrics is damaged: {error}") from None

    @cached_property
    def simulation(self) -> Simulation:
        """What the configuration stands for: data, partition, architectures, method."""
        here = self.config.runtime.model_copy(update={"device": "cpu"})
        return Simulation(self.config.model_copy(update={"runtime": here}), self._progress)

    @property
    def original(self) -> Simulation:
        """The same, or a StoreError if the data is no longer what the run was trained on.

        Other data has other classes and other statistics: right weights would predict wrongly.
        """
        simulation = self.simulation
        self.store.check_origin(simulation.population.digest, self.config.federation_digest())
        return simulation

    def model(self, client: str, *, best: bool = False) -> nn.Module:
        """A client's personal model after the last round, or after the best by validation."""
        manifest, simulation = self._committed(client, best), self.original
        version, download = manifest.clients[client].version, self._download(client, manifest)
        task = Task(manifest.run, client, manifest.round, version, download)
        return restored(simulation, self.store.clients, task)[1]

    def personal(self, client: str = "", *, best: bool = False) -> Personal:
        """A client's model with all it takes to predict with it or export it.

        The name may be left out where there is but one client. Of a run that goes on it is the
        model of the latest round, though that may have come after the run was opened.
        """
        client = client or self._only_client()
        manifest = self._committed(client, best)
        simulation = self.original
        try:
            moment = self._moment(client, manifest, best)
            download = self._download(client, manifest)
            return personal_at(simulation, self.store.clients, client, moment, download)
        except DamageError as error:
            later = Run(RunStore.open(self.directory), self._progress)
            if later.manifest.round > self.manifest.round:  # it went on and removed what was old
                later.simulation = simulation
                return later.personal(client, best=best)
            raise DamageError(
                f"the model of {client} after round {manifest.round} cannot be read: {error}; "
                f"{self.store.way_back()}"
            ) from None

    def _committed(self, client: str, best: bool) -> Manifest:
        """The last round, or the best by validation, in which the client has its place."""
        if client not in self.manifest.clients:
            raise StoreError(unknown("client", client, self.manifest.clients))
        if not best:
            return self.manifest
        if self.manifest.best_round is None:
            raise StoreError(
                f"{self.directory} has no best round: no round was measured on validation samples"
            )
        manifest = self.store.manifest(self.manifest.best_round)
        if client not in manifest.clients:
            raise StoreError(f"{client} came after round {manifest.round}, the best by validation")
        return manifest

    def _only_client(self) -> str:
        names = sorted(self.manifest.clients)
        if len(names) > 1:
            raise StoreError(
                f"{self.directory} has {len(names):,} clients: say which (--client) of "
                f"{listed(names, 4)}"
            )
        return names[0]

    def _download(self, client: str, manifest: Manifest) -> Payload:
        """What the client would have been sent after a round."""
        simulation = self.simulation
        card = simulation.population.card(client, simulation.method.needs)
        state, ctx = self.store.server_state(manifest), simulation.context(manifest.round)
        return simulation.method.download(state, card, ctx)

    def _moment(self, client: str, manifest: Manifest, best: bool) -> Moment:
        with self.reading_rows():
            # Whoever answered sent metadata at least; a client that failed sent nothing.
            answers = [
                row["floats_up"]
                for row in self.clients
                if row["client"] == client and row["round"] <= manifest.round and row["metadata_up"]
            ]
        version = manifest.clients[client].version
        return Moment(manifest.run, manifest.round, version, best, answers, self.environment)

    def results(
        self, simulation: Simulation | None = None, *, report: bool = True
    ) -> dict[str, bytes]:
        """What `summary.json` and `report.html` are to hold.

        Who has the run's simulation at hand gives it; else it is made anew from the configuration.
        """
        files = {"summary.json": json.dumps(self.summary, indent=2).encode()}
        if report:
            # Imported where used: figures take a second to load.
            from pfedes.report.page import render

            # Directories may have names that are no text.
            files["report.html"] = render(self, simulation).encode(errors="replace")
        return files

    def write_results(self, simulation: Simulation | None = None, *, report: bool = True) -> None:
        """Writes `summary.json` and, if wanted, `report.html`."""
        for name, content in self.results(simulation, report=report).items():
            publish(self.directory / name, content)
