"""A run on disk, finished or not: its metrics and its clients' models."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from torch import nn

from pfedes.config import Config, stored_config, with_method_imported
from pfedes.config.earlier_digests import earlier_federation_digest
from pfedes.core.client import Client
from pfedes.core.payload import Payload
from pfedes.core.protocol import Task
from pfedes.data.dataset import Progress, silent
from pfedes.data.kept import dataset_from
from pfedes.errors import DamageError, PfedesError, StoreError, unknown
from pfedes.formatting import listed
from pfedes.population.kept_own_data import all_from
from pfedes.population.simulation import KnownData, Simulation
from pfedes.privacy.budget import Budget
from pfedes.results.closing import as_html, headline
from pfedes.results.frame import frame_of
from pfedes.results.paired import Difference, difference
from pfedes.results.personal import PersonalModel, personal_at, restored
from pfedes.results.provenance import Moment
from pfedes.results.summary import Row, summarise
from pfedes.store.manifest import Manifest
from pfedes.store.run_store import RunStore
from pfedes.store.trust import check_code, code_of


def open_run(
    directory: Path | str,
    progress: Progress = silent,
    *,
    data_dir: Path | str | None = None,
    trust_code: bool = False,
) -> "Run":
    """Opens a run directory for reading, also while the run continues.

    Args:
        directory: The run directory.
        progress: Called with a label, steps done and their total when data must be decoded.
        data_dir: Directory of the data, if it has moved.
        trust_code: Whether to import models, data and methods that the run names although no run of
            yours recorded them on this machine. They are imported when a model is asked for.

    Returns:
        The run as it is now.

    Raises:
        StoreError: The directory holds no run.
        DamageError: A file is damaged; the message names a round to go back to.
    """
    store = RunStore.open(Path(directory))
    try:
        return Run(store, progress, data_dir, trust_code=trust_code)
    except DamageError as error:
        raise DamageError(f"{error}; {store.way_back()}") from None


def check_federation(store: RunStore, config: Config) -> None:
    """Refuses a run's configuration if it is no longer what the run was made for."""
    store.check_federation(config.federation_digest(), earlier_federation_digest(config))


def is_spent(budget: Budget | None, clients: Iterable[str], config: Config) -> bool:
    """Whether fewer clients may be in another release than a round needs."""
    return budget is not None and len(budget.eligible(clients)) < config.fewest_uploads


class Run:
    """A run as it was when it was opened: its rows, its result, and its clients' models.

    `open_run` opens one.

    Attributes:
        directory: The run directory.
        config: The configuration.
        rounds: The rows of `rounds.jsonl`: one per round.
        clients: The rows of `clients.jsonl`: one per asked client and round.

    Args:
        store: The run directory.
        progress: As for `open_run`.
        data_dir: As for `open_run`.
        trust_code: As for `open_run`.
    """

    def __init__(
        self,
        store: RunStore,
        progress: Progress = silent,
        data_dir: Path | str | None = None,
        *,
        trust_code: bool = False,
    ) -> None:
        self.store = store
        self._trust_code = trust_code
        self._progress = progress
        self._data_dir = data_dir
        self.directory = store.directory
        self.config: Config = stored_config(store.directory / "config.toml")
        self.manifest: Manifest = store.manifest()
        self.rounds: list[Row] = store.rows("rounds.jsonl", self.manifest)
        """A row per round."""
        self.clients: list[Row] = store.rows("clients.jsonl", self.manifest)
        """A row per asked client per round."""

    @property
    def finished(self) -> bool:
        """Whether all rounds are done, or patience or the privacy budget ended the run."""
        done = self.manifest.ends(self.config.train.rounds, self.config.train.patience)
        return done or self.ended_by_budget

    @property
    def ended_by_budget(self) -> bool:
        """Whether too few clients may be in another release."""
        return is_spent(self.budget, self.manifest.clients, self.config)

    @cached_property
    def budget(self) -> Budget | None:
        """What the releases of the run cost each client; None if `[privacy]` adds no noise."""
        if not self.config.privacy.noisy:
            return None
        return Budget(self.config.privacy, self.store.account(self.manifest)[0])

    @property
    def trained(self) -> bool:
        """Whether any round succeeded. If not, accuracies are those of untrained models."""
        return any(row["status"] == "ok" for row in self.rounds)

    def why_untrained(self) -> str:
        """Returns why no round succeeded, in one line."""
        reasons = [row["reason"] for row in self.clients if row["reason"]]
        return f"no round succeeded{f': {reasons[0]}' if reasons else ''}"

    def frame(self, kind: Literal["rounds", "clients"] = "rounds") -> Any:
        """The rows as a pandas DataFrame; where pandas is not installed, as dictionaries.

        Args:
            kind: "rounds" for a row per round, "clients" for one per asked client and round.
        """
        return frame_of(self.rounds if kind == "rounds" else self.clients)

    def __repr__(self) -> str:
        return f"<Run {self.directory}: {headline(self)}>"

    def _repr_html_(self) -> str:
        """The headline, the curve and the closing table as HTML, for notebooks."""
        return as_html(self)

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The names of all classes; none where what was kept of the data is damaged."""
        try:
            kept = self.store.kept_data()
            if kept is None or self.config.brings_own:
                return self.config.federation.classes
            return dataset_from(kept, str(self.store.kept_path)).class_names
        except PfedesError:  # scores are still shown; a caller that needs the data gets the error
            return ()

    @property
    def environment(self) -> dict[str, Any]:
        """The content of `environment.json`: versions, processor, command and digests."""
        return self.store.environment()

    @property
    def summary(self) -> Row:
        """The result, as in `summary.json`; accuracies are fractions."""
        with self.reading_rows():
            return (
                summarise(
                    method=self.config.method.name,
                    dataset="their own data" if self.config.brings_own else self.config.data.source,
                    seed=self.config.seed,
                    precision=self.config.train.precision,
                    targets=self.config.evaluate.targets,
                    manifest=self.manifest,
                    rounds=self.rounds,
                    clients=self.clients,
                )
                | self._spent()
            )

    def _spent(self) -> Row:
        if self.budget is None:
            return {}
        names = self.manifest.clients
        uploads = self.config.train.selected(len(names))
        numbers = self.store.server_state(self.manifest).floats
        ended = {"ended": "budget"} if self.manifest.round < self.config.train.rounds else {}
        return {
            "privacy": self.budget.summary(names, numbers, uploads),
            **(ended if self.ended_by_budget else {}),
        }

    def difference(self, other: "Run") -> Difference:
        """Compares this run with another, client by client.

        Args:
            other: A run with the same data, partition and seed.

        Returns:
            The mean difference in accuracy with its 95 % interval.

        Raises:
            StoreError: The runs do not have the same clients, or clients keep their scores.
        """
        mine, theirs = (
            (sorted(run.manifest.clients), run.environment["data"], run.config.seed)
            for run in (self, other)
        )
        if mine != theirs or self.config.partition != other.config.partition:
            raise StoreError(
                f"{self.directory} and {other.directory} do not have the same clients: only runs "
                "with equal data, partition and seed can be compared client by client"
            )
        return difference([self.known_accuracies()], [other.known_accuracies()])

    def known_accuracies(self) -> list[float]:
        """Returns the accuracies of all clients, for a comparison.

        Raises:
            StoreError: Participants keep their scores to themselves.
        """
        if not self.manifest.scores:
            raise StoreError(
                f"{self.directory} cannot be compared: its participants keep their scores "
                "(privacy.metadata = 'none')"
            )
        accuracies: list[float] = self.summary["accuracies"]
        return accuracies

    @contextmanager
    def reading_rows(self) -> Iterator[None]:
        """Reports an incomplete row as damage of the run, within a `with` block."""
        try:
            yield
        except (KeyError, TypeError, ValueError) as error:
            raise DamageError(f"{self.directory}: a row of metrics is damaged: {error}") from None

    @cached_property
    def simulation(self) -> Simulation:
        """The simulation of the configuration: data, partition, architectures, method.

        A StoreError if it was changed, or names code that must not be imported.
        """
        return self._simulation()

    def _simulation(self, data: KnownData | None = None) -> Simulation:
        here = self.config.runtime.model_copy(update={"device": "cpu"})
        config = self.config.model_copy(update={"runtime": here})
        check_federation(self.store, config)
        names = code_of(config, loads_data=data is None)
        check_code(self.manifest.run, self.directory, names, trust_code=self._trust_code)
        config = with_method_imported(config)
        if self._data_dir is not None:
            config = config.with_data_in(self._data_dir)
        return Simulation(config, self._progress, data)

    @cached_property
    def stored(self) -> Simulation | None:
        """The same from what the run kept, its clients without inputs.

        None in older runs, and where somebody says in which directory the data lies: that is then
        used, and compared. A StoreError if what was kept belongs to other data than the run's.
        """
        if self._data_dir is not None or (kept := self.store.kept_data()) is None:
            return None
        simulation = self._simulation(self._known(kept))
        self.store.check_data(simulation.population.digest)
        return simulation

    def _known(self, kept: Payload) -> KnownData:
        if not self.config.participants:
            return dataset_from(kept, str(self.store.kept_path))
        names = [person.name for person in self.config.participants]
        classes = len(self.config.federation.classes)
        return all_from(kept, names, classes, str(self.store.kept_path))

    @property
    def original(self) -> Simulation:
        """The run's clients with their data.

        Raises:
            StoreError: The data is no longer what the run was trained on. Classes and statistics
                would differ, and a model would predict wrongly.
        """
        simulation = self.simulation
        self.store.check_data(simulation.population.digest)
        return simulation

    def model(self, client: str, *, best: bool = False) -> nn.Module:
        """Loads a client's personal model.

        Args:
            client: Name of the client.
            best: Whether to take the best round by validation instead of the last.

        Returns:
            The torch module that predicts for the client.

        Raises:
            StoreError: There is no such client, or no best round.
            DamageError: A file is damaged.
        """
        manifest, simulation = self._committed(client, best), self.stored or self.original
        version = manifest.clients[client].version
        download = self._download(client, manifest, simulation)
        task = Task(manifest.run, client, manifest.round, version, download)
        return restored(simulation, self.store.clients, task)[1]

    def client(self, name: str) -> tuple[Client, Payload]:
        """Restores a client after the last round, with its data.

        Args:
            name: Name of the client.

        Returns:
            The client, and what it would be sent now.
        """
        manifest, simulation = self._committed(name, best=False), self.original
        version = manifest.clients[name].version
        download = self._download(name, manifest, simulation)
        task = Task(manifest.run, name, manifest.round, version, download)
        return restored(simulation, self.store.clients, task)[0], download

    def personal(self, client: str = "", *, best: bool = False) -> PersonalModel:
        """Loads a client's model with everything needed to predict with it or export it.

        If the run has continued since it was opened, this may be the model of a later round.

        Args:
            client: Name of the client; optional if there is only one.
            best: Whether to take the best round by validation instead of the last.

        Returns:
            The model, with its classes, the preparation of inputs, and facts about it.

        Raises:
            StoreError: There is no such client, or no best round.
            DamageError: A file is damaged.
        """
        client = client or self._only_client()
        manifest = self._committed(client, best)
        simulation = self.stored or self.original
        scores = manifest.clients[client].scores if self.stored is not None else None
        try:
            moment = self._moment(client, manifest, best)
            download = self._download(client, manifest, simulation)
            store = self.store.clients
            return personal_at(simulation, store, client, moment, download, scores)
        except DamageError as error:
            later = Run(
                RunStore.open(self.directory),
                self._progress,
                self._data_dir,
                trust_code=self._trust_code,
            )
            if (
                later.manifest.round > self.manifest.round
            ):  # the run continued and removed old files
                if self.stored is not None:
                    later.stored = simulation
                else:
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
                f"{self.directory} has {len(names):,} clients: choose one with --client: "
                f"{listed(names, 4)}"
            )
        return names[0]

    def _download(self, client: str, manifest: Manifest, simulation: Simulation) -> Payload:
        """The download that the client would have received after a round."""
        card = simulation.population.card(client, simulation.method.needs)
        card = replace(card, accepted=manifest.clients[client].version)
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
        about, metric = self.environment, self.config.metric
        return Moment(manifest.run, manifest.round, version, best, answers, about, metric)

    def reopened(self) -> "Run":
        """Returns the same run as it is on disk now."""
        return Run(
            RunStore(self.directory), self._progress, self._data_dir, trust_code=self._trust_code
        )
