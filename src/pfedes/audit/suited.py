"""A run's configuration and clients under settings that suit an attack."""

from collections.abc import Mapping

from pfedes.config import Config
from pfedes.config.limits import Limits
from pfedes.population.consent import Consent
from pfedes.population.partitioned import PartitionedPopulation
from pfedes.population.simulation import Simulation


def suited(config: Config, chosen: Mapping[str, float]) -> Config:
    """The configuration with these keys of `[train]` and `[method]` changed."""
    found: dict[str, dict[str, float]] = {"train": {}, "method": {}}
    for key, value in chosen.items():
        section, name = key.split(".")
        found[section][name] = value
    return config.model_copy(
        update={
            "train": config.train.model_copy(update=found["train"]),
            "method": config.method.model_copy(update=found["method"]),
        }
    )


def consent_to(config: Config, limits: Limits) -> Consent:
    """The consents of a participant that accepts this method, within limits."""
    keys = config.method.model_dump(exclude={"name"})
    return Consent((config.method.name,), keys, limits)


def population_of(simulation: Simulation) -> PartitionedPopulation:
    """The population of a simulation that is known to have a partition."""
    assert isinstance(simulation.population, PartitionedPopulation)
    return simulation.population
