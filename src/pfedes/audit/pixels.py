"""The attack with crafted downloads on a client of a run, without limits and with them."""

from collections.abc import Iterator

import numpy as np
import torch

from pfedes.audit.attempts import AttackResult
from pfedes.audit.crafted import CONVENIENT, CRAFTED, NO_LIMITS, Change, Thief, patches_of
from pfedes.audit.intervals import share_of
from pfedes.audit.shadows import Forgetful, Shadows
from pfedes.audit.sights import Noise
from pfedes.config import Config
from pfedes.config.limits import Limits
from pfedes.core.shapes import is_image
from pfedes.data.dataset import Progress
from pfedes.fleet.client_host import host_of
from pfedes.methods.pfedes import PFedES
from pfedes.population.consent import Consent
from pfedes.population.partitioned import PartitionedPopulation
from pfedes.population.simulation import Simulation
from pfedes.privacy.encoding import flat, moved_by
from pfedes.results.findings import Situation

REQUESTS = 12
GUESSES = 10  # times as many, for a steady share

ON: tuple[Situation, ...] = ("as it is", "local noise", "default limits")
PATCHES = "share of filters that show a patch of a picture"


def attempts_on_pixels(
    shadows: Shadows, noise: float, requests: int, progress: Progress
) -> Iterator[AttackResult]:
    """Reads patches of the first client's pictures, in all situations."""
    if why := _why_not(shadows.base):
        yield AttackResult(CRAFTED, "patches of pixels", "as it is", PATCHES, note=why)
        return
    for done, situation in enumerate(ON, 1):
        thief = _thief(shadows, Limits() if situation == "default limits" else NO_LIMITS)
        units = len(thief.honest["conv1.bias"])
        trials = units * requests
        guesses = thief.hits(thief.guessed(GUESSES * trials)) / GUESSES
        baseline = max(guesses, 1) / trials
        drowned = _Drowned(noise) if situation == "local noise" else dict
        hits = thief.hits(thief.stolen(units, requests, drowned))
        yield AttackResult(
            CRAFTED,
            "patches of pixels",
            situation,
            PATCHES,
            baseline=baseline,
            estimate=share_of(hits, trials, baseline),
            trials=trials,
            note="the coordinator chooses the hyper-parameters, too",
        )
        progress("crafted downloads", done, len(ON))


def _why_not(simulation: Simulation) -> str:
    method, population = simulation.method, simulation.population
    shapes = {card.shape for card in population.cards(frozenset())}
    is_known = isinstance(method, PFedES) and method.config.extractor == "auto"
    if not is_known or method.name != "pfedes" or method.config.residual:
        return "written for the extractor of pFedES"
    if not method.averages_parameters:
        return "no extractor travels"
    if not all(map(is_image, shapes)):
        return "written for images"
    return "" if len(population.names) > 1 else "the thief needs pictures of another client"


def _thief(shadows: Shadows, limits: Limits) -> Thief:
    simulation = _as_convenient(shadows.base, limits)
    victim, other, *_ = simulation.population.names
    honest = {name: tensor.clone() for name, tensor in shadows.state.tensors.items()}
    own = patches_of(simulation.population, other)
    return Thief(host_of(simulation, Forgetful()), victim, honest, own)


def _as_convenient(base: Simulation, limits: Limits) -> Simulation:
    """The run's clients under the settings that suit the attack, with these limits."""
    config = base.config
    chosen: dict[str, dict[str, float]] = {"train": {}, "method": {}}
    for key, value in CONVENIENT.items():
        section, name = key.split(".")
        chosen[section][name] = value
    changed: Config = config.model_copy(
        update={
            "train": config.train.model_copy(update=chosen["train"]),
            "method": config.method.model_copy(update=chosen["method"]),
            "participants": tuple(
                person.model_copy(update={"limits": limits}) for person in config.participants
            ),
        }
    )
    population = base.population
    if not isinstance(population, PartitionedPopulation):
        return Simulation(changed)
    simulation = Simulation(changed, data=population.dataset)
    assert isinstance(simulation.population, PartitionedPopulation)
    keys = config.method.model_dump(exclude={"name"})
    simulation.population.consented = Consent((config.method.name,), keys, limits)
    return simulation


class _Drowned:
    """Noise on a change that is as long as the clip: none is made smaller."""

    def __init__(self, noise: float) -> None:
        self.noise = noise
        self._answers = 0

    def __call__(self, change: Change) -> Change:
        self._answers += 1
        numbers = flat(change)
        size = float(np.linalg.norm(numbers))
        if not size:
            return change
        nothing = {name: torch.zeros_like(tensor) for name, tensor in change.items()}
        return moved_by(nothing, Noise(size, self.noise, self._answers)(numbers))
