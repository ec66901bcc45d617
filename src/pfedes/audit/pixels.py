"""The attack with crafted downloads on a client of a run, without limits and with them."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from pfedes.audit.attempts import AttackResult
from pfedes.audit.crafted import CONVENIENT, CRAFTED, NO_LIMITS, Change, Thief, patches_of
from pfedes.audit.intervals import share_of
from pfedes.audit.shadows import Forgetful, Shadows, change_in
from pfedes.audit.sights import Noise
from pfedes.audit.suited import consent_to, population_of, suited
from pfedes.config.limits import Limits
from pfedes.core.shapes import is_image
from pfedes.data.dataset import Progress
from pfedes.fleet.client_host import host_of
from pfedes.methods.pfedes import PFedES
from pfedes.population.partitioned import PartitionedPopulation
from pfedes.population.simulation import Simulation
from pfedes.privacy.encoding import flat, moved_by
from pfedes.results.findings import Situation

REQUESTS = 12
GUESSES = 10  # times as many, for a steady share

LIMITED: Situation = "default limits"
PATCHES = "share of filters that show a patch of a picture"


def attempts_on_pixels(
    shadows: Shadows, noise: float, requests: int, progress: Progress
) -> Iterator[AttackResult]:
    """Reads patches of the first client's pictures, in all situations."""
    if why := _why_not(shadows.base):
        yield AttackResult(CRAFTED, "patches of pixels", "as it is", PATCHES, note=why)
        return
    situations = situations_of(shadows)
    for done, situation in enumerate(situations, 1):
        thief = thief_of(shadows, situation)
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
        progress("crafted downloads", done, len(situations))


def situations_of(shadows: Shadows) -> tuple[Situation, ...]:
    """Those of uploads, where there are enough clients for a sum, and a participant's limits."""
    enough = len(shadows.base.population.names) > fewest_in_a_sum(shadows)  # one is the thief's
    found = [each for each in shadows.situations if enough or each != "secure sum"]
    return (*found, LIMITED)


def fewest_in_a_sum(shadows: Shadows) -> int:
    return shadows.base.config.privacy.least


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


def thief_of(shadows: Shadows, situation: Situation) -> Thief:
    """Against the first client; in a sum, as few as may be are beside it.

    The thief has pictures like the last client's.
    """
    simulation = _as_convenient(shadows.base, Limits() if situation == LIMITED else NO_LIMITS)
    victim, *others = simulation.population.names
    honest = {name: tensor.clone() for name, tensor in shadows.state.tensors.items()}
    own = patches_of(simulation.population, others[-1])
    beside = others[: fewest_in_a_sum(shadows) - 1] if situation == "secure sum" else []
    return Thief(
        *(host_of(simulation, Forgetful()), victim, honest, own),
        read=partial(change_in, simulation),
        beside=beside,
    )


def _as_convenient(base: Simulation, limits: Limits) -> Simulation:
    """The run's clients under the settings that suit the attack, with these limits."""
    people = (person.model_copy(update={"limits": limits}) for person in base.config.participants)
    config = suited(base.config, CONVENIENT).model_copy(update={"participants": tuple(people)})
    if not isinstance(base.population, PartitionedPopulation):
        return Simulation(config)
    simulation = Simulation(config, data=base.population.dataset)
    population_of(simulation).consented = consent_to(config, limits)
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
