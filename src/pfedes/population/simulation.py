"""The data, the clients and the method that a configuration describes."""

from collections.abc import Callable, Mapping

from pfedes.config import Config
from pfedes.core.context import Context
from pfedes.core.device import device_of
from pfedes.core.seeding import Streams
from pfedes.data import sources
from pfedes.data.dataset import Dataset, Progress, silent
from pfedes.errors import ConfigError, MethodError
from pfedes.methods import METHODS, method_class
from pfedes.population.base import Population
from pfedes.population.own_data import OwnData
from pfedes.population.participants import Participants
from pfedes.population.partitioned import PartitionedPopulation
from pfedes.population.remote import RemotePopulation
from pfedes.privacy.budget import check_affordable
from pfedes.privacy.mechanism import Mechanism, reproducible_key

KnownData = Dataset | Mapping[str, OwnData]
"""A data set, or what each participant holds."""


class Simulation:
    """The same from the same configuration, in every process that builds it."""

    def __init__(
        self, config: Config, progress: Progress = silent, data: KnownData | None = None
    ) -> None:
        """Uses the data that the caller gives; without it, loads the data as configured."""
        self.config = config = config.settled()
        self.method = method_class(config.method.name)(config.method)
        self.streams = Streams(config.seed)
        self.population = self._population(progress, data)
        self._check_aggregation()
        self._check_privacy()

    def _population(self, progress: Progress, data: KnownData | None) -> Population:
        config, device = self.config, device_of(self.config.runtime.device)
        if config.participants:
            own = None if isinstance(data, Dataset) else data
            people, terms = config.participants, config.federation
            return Participants(people, terms, self.streams, device, progress, own)
        if config.federation.participants:
            return RemotePopulation(config.federation, device)
        dataset = data if isinstance(data, Dataset) else sources.load(config.data, progress)
        return PartitionedPopulation(
            dataset, config.data, config.partition, config.models, self.streams, device
        )

    @property
    def over_network(self) -> bool:
        """Whether clients answer from machines of their own, and keep there what is theirs."""
        return bool(self.config.federation.participants)

    @property
    def scores_are_told(self) -> bool:
        """Whether the server hears how clients' models do."""
        return self.population.is_here or self.config.privacy.metadata != "none"

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
            max_share=self.config.max_share,
            summed=self.config.privacy.summed,
            metadata=self.config.privacy.metadata,
            measures=self.config.federation.measures,
        )

    def mechanism(self, key: Callable[[str], bytes] | None = None, run: str = "") -> Mechanism:
        """The mechanism of `[privacy]`; its keys follow from the seed unless one is given."""
        key = key or reproducible_key(self.streams)
        return Mechanism(self.config.privacy, self.config.train.min_uploads, key, run)

    def _check_privacy(self) -> None:
        """Refuses settings of `[privacy]` that could not be kept, before anything is trained."""
        config, privacy, name = self.config, self.config.privacy, self.method.name
        if config.federation.measures and privacy.metadata == "none":
            raise ConfigError(
                "federation.measures must be false with privacy.metadata = 'none': scores stay "
                "with the participants"
            )
        if not (privacy.noisy or privacy.secure_sum or privacy.metadata != "all"):
            return
        if not self.method.additive:
            others = ", ".join(sorted(n for n, kind in METHODS.items() if kind().additive))
            raise MethodError(
                f"{name} cannot be protected by noise, a secure sum or less metadata: its clients "
                "do not send just a change of the shared parameters. "
                f"[privacy] works with {others}"
            )
        self._check_metadata()
        if not (privacy.noisy or privacy.secure_sum):
            return
        what = "secure_sum" if privacy.secure_sum else f"mode = {privacy.mode!r}"
        if privacy.mode != "local" and not config.aggregation.is_plain:
            raise ConfigError(
                f"privacy.{what}: changes are clipped and summed, so that "
                "aggregation.kind must be 'mean' and aggregation.max_norm 0"
            )
        if not privacy.noisy:
            return
        if config.train.patience:
            raise ConfigError(
                "train.patience must be 0 with [privacy]: the round in which a run stops "
                "would reveal something about the data"
            )
        if self.over_network and privacy.mode == "distributed":
            self._check_sharers()
        check_affordable(privacy, config.clients)

    def _check_sharers(self) -> None:
        """The number of clients that divide the noise must be part of the kit, as `least` is."""
        fewest, least = self.config.train.min_uploads, self.config.privacy.least
        if fewest > least:
            raise ConfigError(
                f"train.min_uploads = {fewest} must not exceed privacy.least = {least} with "
                "privacy.mode = 'distributed': the kits fix that the noise is divided among "
                "privacy.least clients"
            )

    def _check_metadata(self) -> None:
        """Refuses metadata that would tell what noise or a sum hides, or that a stop needs."""
        privacy = self.config.privacy
        if privacy.metadata == "none" and self.config.train.patience:
            raise ConfigError(
                "train.patience must be 0 with privacy.metadata = 'none': the server receives no "
                "scores"
            )
        if not self.over_network:
            return
        if privacy.mode in ("local", "distributed") and privacy.metadata != "none":
            raise ConfigError(
                f"privacy.metadata must be 'none' with privacy.mode = {privacy.mode!r}: scores and "
                "losses leave without noise, so that epsilon would not cover what the coordinator "
                "learns"
            )
        if privacy.secure_sum and privacy.metadata == "all":
            raise ConfigError(
                "privacy.metadata must be 'scores' or 'none' with privacy.secure_sum: samples and "
                "losses of each participant are what a sum is to hide"
            )

    def _check_aggregation(self) -> None:
        rule = self.config.aggregation
        if not (self.method.averages_parameters or rule.is_plain):
            raise MethodError(
                f"{self.method.name} averages no parameters: "
                "aggregation.kind must be 'mean' and aggregation.max_norm 0"
            )
