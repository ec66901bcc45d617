"""The configuration of a run: the sections of all concerns joined, and their digests."""

import json
import math
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import tomli_w
from pydantic import Field, SerializeAsAny

from pfedes.config.evaluate import EvaluateConfig
from pfedes.config.federation import NETWORK, FederationConfig
from pfedes.config.participant import FOLDER, Participant
from pfedes.config.runtime import RuntimeConfig
from pfedes.config.toml import lines_of
from pfedes.core.aggregation import AggregationConfig
from pfedes.core.measures import Metric
from pfedes.core.precision import Precision
from pfedes.core.train_config import TrainConfig
from pfedes.data.partition import PartitionConfig
from pfedes.data.sources import DataConfig
from pfedes.data.tables import TableConfig
from pfedes.errors import ConfigError
from pfedes.files import at_home
from pfedes.methods.base import MethodConfig
from pfedes.methods.pfedes import PFedESConfig
from pfedes.models import ModelsConfig
from pfedes.privacy.config import PrivacyConfig
from pfedes.section import Section

WHO = ("data", "partition", "models", "federation", "participants")
"""The sections that say who takes part."""

SERVER_SIDE = {"rounds", "participation", "min_uploads", "patience"}
"""Keys of `[train]` that make no difference to a client's work in a round."""


class Config(Section):
    """Everything that determines a run. `configure` builds one.

    Its fields are the sections of a configuration file: see the page on configuration.
    """

    seed: int = Field(0, ge=0, description="random seed of the run")
    preset: Literal["paper", "released"] = Field(
        "paper", description="paper | released (the authors' code); explicit keys win"
    )
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    models: ModelsConfig = ModelsConfig()
    method: SerializeAsAny[MethodConfig] = PFedESConfig()
    train: TrainConfig = TrainConfig()
    aggregation: AggregationConfig = AggregationConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    federation: FederationConfig = FederationConfig()
    participants: tuple[Participant, ...] = Field(
        (), description="participant.toml files of participants with their own model and data"
    )
    compare: dict[str, dict[str, Any]] = Field(
        {}, description="keys that apply to one method only, by its name"
    )
    table: TableConfig = TableConfig()
    privacy: PrivacyConfig = PrivacyConfig()

    @property
    def clients(self) -> int:
        """The number of clients, if all take part."""
        people = self.federation.participants or self.participants
        return len(people) or self.partition.clients

    @property
    def brings_own(self) -> bool:
        """Whether participants bring their own data, so that nothing is partitioned."""
        return bool(self.participants or self.federation.participants)

    @property
    def data_name(self) -> str:
        """The data in names of run directories."""
        return "own" if self.brings_own else self.data.source.partition(":")[0]

    @property
    def metric(self) -> Metric:
        """The metric that chooses the best round.

        Without `federation.measures`, participants on other machines report accuracy only.
        """
        elsewhere = self.federation.participants and not self.participants
        hidden = elsewhere and not self.federation.measures
        return "accuracy" if hidden else self.evaluate.metric

    @property
    def max_share(self) -> float:
        """The largest weight of one client; 1 for no bound.

        It applies to federations of three or more participants, since these report their own
        sample counts. Clients of a partition are not bounded.
        """
        participants = self.participants or self.federation.participants
        return self.federation.max_share if len(participants) >= 3 else 1.0

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """All precisions in which clients train, including the participants' own choices."""
        own = {person.precision or self.train.precision for person in self.participants}
        return tuple(sorted(own or {self.train.precision}))

    def settled(self) -> "Config":
        """Returns the configuration with values fixed that depend on others in a new run."""
        asked = self.train.selected(self.clients)
        releases = math.ceil(self.train.rounds * asked / self.clients)
        return self.model_copy(
            update={
                "method": self.method.settled(self.train),
                "privacy": self.privacy.settled(releases),
            }
        )

    @property
    def fewest_uploads(self) -> int:
        """Number of uploads that a round needs to succeed."""
        summed = self.privacy.least if self.privacy.secure_sum else 1
        return max(self.train.min_uploads, self.aggregation.fewest, summed)

    def check_uploads(self, clients: int) -> None:
        """Checks that a round of so many clients can succeed.

        Args:
            clients: Number of clients.

        Raises:
            ConfigError: A round needs more uploads than it asks clients for.
        """
        asked, rule = self.train.selected(clients), self.aggregation
        if asked < self.train.min_uploads:
            raise ConfigError(
                f"train.min_uploads = {self.train.min_uploads}, but a round selects {asked} "
                f"of {clients} clients"
            )
        if self.privacy.secure_sum and asked < self.privacy.least:
            raise ConfigError(
                f"privacy.least = {self.privacy.least}, but a round selects {asked} of "
                f"{clients} clients, and a secure sum of fewer is not opened"
            )
        if asked < rule.fewest:
            liars = f" with byzantine = {rule.byzantine}" if rule.kind == "krum" else ""
            raise ConfigError(
                f"aggregation.kind = {rule.kind!r}{liars} needs {rule.fewest} uploads, but "
                f"a round selects {asked} of {clients} clients"
            )

    def local_digest(self) -> str:
        """Returns a digest of everything that affects a client's work in a round.

        Like all digests, it leaves out keys at their defaults, so that new keys change no digest,
        and the places of data, code and states; data has its own digest.
        """
        return self.settled()._digest("local", {"seed", "method", "train", "privacy", *WHO})

    def asked_digest(self) -> str:
        """Returns a digest of the settings that a server sends to every client."""
        # start_from names a file of the server's, which clients do not hear of.
        sections = {"seed", "method", "train", "federation", "privacy"}
        return self.settled()._digest("asked", sections, {"method": {"start_from"}})

    def result_digest(self) -> str:
        """Returns a digest of everything that affects a run's result."""
        indifferent = {
            "data": self.data.model_copy(update={"dir": ""}),
            "evaluate": self.evaluate.model_copy(update={"targets": EvaluateConfig().targets}),
            "runtime": RuntimeConfig(),
            "federation": self.federation.model_copy(
                update={key: FederationConfig.model_fields[key].default for key in NETWORK}
            ),
            "compare": {},
        }
        settled = self.settled().model_copy(update=indifferent)
        tree = settled.model_dump(mode="json", exclude_defaults=True)
        return digest_of(json.dumps([self.method.name, tree], sort_keys=True))

    def federation_digest(self) -> str:
        """Returns a digest of the settings that cannot change during a run, such as the method."""
        return self._digest("federation", {"seed", *WHO})

    def _digest(
        self, kind: str, sections: set[str], but: Mapping[str, set[str]] = MappingProxyType({})
    ) -> str:
        tree = self.placeless().model_dump(
            mode="json",
            include=sections,
            exclude={"train": SERVER_SIDE, "federation": NETWORK, "privacy": {"epsilon"}, **but},
            exclude_defaults=True,
        )
        said = {name: section for name, section in tree.items() if section != {}}
        return digest_of(json.dumps([kind, self.method.name, said], sort_keys=True))

    def placeless(self) -> "Config":
        """Returns the configuration without the places of data, code and states."""
        source = self.data.source
        data = {"dir": "", "source": FOLDER if source.startswith(FOLDER) else source}
        return self.model_copy(
            update={
                "data": self.data.model_copy(update=data),
                "participants": tuple(person.placeless() for person in self.participants),
            }
        )

    def with_data_in(self, directory: Path | str) -> "Config":
        """Returns the configuration for data that has moved.

        Args:
            directory: Where the data is now.

        Raises:
            ConfigError: The configuration names no directory that could have moved.
        """
        place = str(at_home(directory).absolute())
        if self.participants:
            folders = {p.data for p in self.participants if p.data.startswith(FOLDER)}
            if len(folders) != 1:
                raise ConfigError(
                    f"--data-dir {directory}: every participant has data of its own; "
                    "change 'data' under [[participants]] in config.toml instead"
                )
            moved = {"data": f"{FOLDER}{place}"}
            everyone = tuple(
                p.model_copy(update=moved) if p.data in folders else p for p in self.participants
            )
            return self.model_copy(update={"participants": everyone})
        is_folder = self.data.source.startswith(FOLDER)
        key, value = ("source", f"{FOLDER}{place}") if is_folder else ("dir", place)
        return self.model_copy(update={"data": self.data.model_copy(update={key: value})})

    def to_toml(self) -> str:
        """Returns the configuration as TOML; `pfedes run` repeats a run from it."""
        people = [person.model_dump(mode="json") for person in self.participants]
        tables = tomli_w.dumps({"participants": people}) if people else ""
        return "\n".join([*lines_of(self, comments=False), "", tables]).rstrip() + "\n"

    def to_commented_toml(self) -> str:
        """Returns all keys with their values and meanings, as TOML to edit."""
        return "\n".join(lines_of(self, comments=True)) + "\n"


def digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()
