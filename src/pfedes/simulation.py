"""What a configuration stands for: its data, its clients, its method."""

import os

from pfedes.clientstore import ClientStore
from pfedes.config import Config
from pfedes.data import sources
from pfedes.data.dataset import Dataset, Progress, silent
from pfedes.device import device_of
from pfedes.elsewhere import Elsewhere
from pfedes.errors import ConfigError, MethodError
from pfedes.fleet.base import Fleet
from pfedes.fleet.host import ClientHost
from pfedes.fleet.serial import SerialFleet
from pfedes.fleet.workers import WorkerFleet
from pfedes.methods import method_class
from pfedes.methods.base import Context
from pfedes.participants import Participants
from pfedes.population import Dealt, Population
from pfedes.seeding import Streams


class Simulation:
    """The same from the same configuration, in every process that builds it."""

    def __init__(
        self, config: Config, progress: Progress = silent, dataset: Dataset | None = None
    ) -> None:
        """Who has the data set at hand gives it; else it is loaded as configured."""
        self.config = config = config.settled()
        self.method = method_class(config.method.name)(config.method)
        self.streams = Streams(config.seed)
        self.population = self._population(progress, dataset)
        self._check_aggregation()

    def _population(self, progress: Progress, dataset: Dataset | None) -> Population:
        config, device = self.config, device_of(self.config.runtime.device)
        if config.participants:
            people = config.participants
            return Participants(people, config.federation, self.streams, device, progress)
        if config.federation.participants:
            return Elsewhere(config.federation, device)
        if dataset is None:
            dataset = sources.load(config.data, progress)
        return Dealt(dataset, config.data, config.partition, config.models, self.streams, device)

    def context(self, round: int) -> Context:
        return Context(
            round=round,
            rounds=self.config.train.rounds,
            streams=self.streams,
            train=self.config.train,
            aggregation=self.config.aggregation,
            classes=len(self.population.class_names),
            channels=self.population.channels,
            pool=self.config.models.pool,
            after_aggregation=self.config.evaluate.after_aggregation,
        )

    def host(self, store: ClientStore) -> ClientHost:
        settings = self.config.local_digest()
        return ClientHost(self.population, self.method, self.context, store, settings)

    def fleet(self, store: ClientStore) -> Fleet:
        runtime = self.config.runtime
        if not self.population.is_here:
            raise ConfigError(
                "federation.participants are on machines of their own: 'pfedes serve' meets them"
            )
        if runtime.fleet == "serial":
            return SerialFleet(self.host(store), runtime.threads)
        if runtime.fleet == "cluster":
            # Imported where used: it is an extra.
            from pfedes.fleet.cluster import ClusterFleet

            return ClusterFleet(self.host(store), self.config)
        workers = os.cpu_count() or 1 if runtime.workers == "auto" else runtime.workers
        workers = min(workers, len(self.population.names))
        return WorkerFleet(self.host(store), self.config.to_toml(), workers)

    def _check_aggregation(self) -> None:
        rule = self.config.aggregation
        if not (self.method.averages_parameters or rule.is_plain):
            raise MethodError(
                f"{self.method.name} averages no parameters: "
                "aggregation.kind must be 'mean' and aggregation.max_norm 0"
            )
