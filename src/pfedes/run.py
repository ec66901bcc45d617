"""A run on disk, finished or not: its metrics and its clients' models."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from pfedes.config import Config, configure
from pfedes.errors import DamageError, StoreError, unknown
from pfedes.files import write_atomically
from pfedes.fleet.base import Task
from pfedes.fleet.host import personal_model
from pfedes.manifest import Manifest
from pfedes.recorder import Row, summarise
from pfedes.simulation import Simulation
from pfedes.store import RunStore


def open_run(directory: Path | str) -> "Run":
    """Opens a run directory for reading, also while the run goes on."""
    store = RunStore.open(Path(directory))
    try:
        return Run(store)
    except DamageError as error:
        raise DamageError(f"{error}; {store.way_back()}") from None


class Run:
    """What was committed until the moment it was opened."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
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
                dataset="their own data" if self.config.participants else self.config.data.source,
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
        return Simulation(self.config.model_copy(update={"runtime": here}))

    def model(self, client: str, *, best: bool = False) -> nn.Module:
        """A client's personal model after the last round, or after the best by validation."""
        manifest = self.manifest
        if best and manifest.best_round is not None:
            manifest = self.store.manifest(manifest.best_round)
        if client not in manifest.clients:
            raise StoreError(unknown("client", client, manifest.clients))
        simulation = self.simulation
        method = simulation.method
        card = simulation.population.card(client, method.needs)
        ctx = simulation.context(manifest.round)
        download = method.download(self.store.server_state(manifest), card, ctx)
        base = manifest.clients[client].version
        task = Task(manifest.run, client, manifest.round, base, download)
        restored = simulation.host(self.store.clients).restore(task)
        return personal_model(method, restored, download, ctx)

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
            write_atomically(self.directory / name, content)
