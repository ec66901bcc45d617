"""Identification: which of a hundred samples a client learned from, in the worst case.

A client with one sample takes one step of the extractor, so that its change is that sample's
gradient. The attacker computes the gradient of every candidate and takes the one that points where
the change does. How far it gets depends on whose model it computes with: the client's own, or that
of a stranger with the same architecture.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from pfedes.audit.attempts import FEWEST_CLIENTS, FEWEST_GROUPS, AttackResult
from pfedes.audit.clock import Clock
from pfedes.audit.intervals import Numbers, resampled, share_of
from pfedes.audit.shadows import Forgetful, Shadows, change_in, extractor_of, model_of
from pfedes.audit.sights import Noise
from pfedes.audit.suited import consent_to, population_of, suited
from pfedes.config.limits import Limits
from pfedes.core.protocol import Failure
from pfedes.core.samples import Batch
from pfedes.data.dataset import Progress
from pfedes.fleet.client_host import ClientHost, host_of
from pfedes.methods import METHODS
from pfedes.population.simulation import Simulation
from pfedes.privacy.encoding import flat
from pfedes.results.findings import Situation

IDENTIFICATION = "identification"
FOUND = "share of samples that were found among the candidates"
KNOWN, STRANGE = "one sample's change, by the client's model", "the same, by a stranger's model"

TRIALS = 100
CANDIDATES = 100
SHARE_OF_TIME = 0.15
FIRST_SEED = 1_000  # no stranger's model begins where a client's does

WORST: Mapping[str, float] = {
    "train.epochs": 1,
    "train.batch_size": 1,
    "train.momentum": 0,
    "train.weight_decay": 0,
    "train.clip": 0,
    "method.extractor_epochs": 1,
}
"""The settings with which a change is one sample's gradient."""


def attempts_on_samples(
    shadows: Shadows, noise: float, clock: Clock, progress: Progress
) -> Iterator[AttackResult]:
    """Both attackers in every situation."""
    if why := _why_not(shadows):
        yield AttackResult(IDENTIFICATION, KNOWN, "as it is", FOUND, note=why)
        return
    identifying = _Identifying(shadows, noise)
    until = clock.spent + SHARE_OF_TIME * clock.seconds
    wanted = max(FEWEST_GROUPS, -(-TRIALS // shadows.cohort_size))
    for number in range(wanted):
        identifying.cohort(number)
        progress("identification", number + 1, wanted)
        if clock.spent > until:
            if number + 1 < wanted:
                clock.cut.append(f"{number + 1:,} of {wanted:,} cohorts of clients with one sample")
            break
    yield from identifying.results()


def _why_not(shadows: Shadows) -> str:
    if why := shadows.why_no_extractor:
        return why
    return "" if shadows.strangers else "no shadow client was made"


class _Identifying:
    def __init__(self, shadows: Shadows, noise: float) -> None:
        self.shadows = shadows
        self.noise = noise
        self.count = int(min(CANDIDATES, np.bincount(shadows.dataset.labels).max()))
        situations = shadows.situations
        if shadows.base.method.name in METHODS:  # limits are for these
            situations = (*situations, "default limits")
        self.situations = situations
        self.found: dict[tuple[str, Situation], list[bool]] = {
            (sees, situation): [] for situation in situations for sees in (KNOWN, STRANGE)
        }
        self.groups: list[int] = []

    def cohort(self, number: int) -> None:
        """The trials of one cohort: one for each client of a secure sum."""
        shadows = self.shadows
        config = suited(shadows.base.config, WORST)
        simulation = shadows.simulation(FIRST_SEED + number, config)
        rng = simulation.streams.numpy("audit.identification")
        names = simulation.population.names[: shadows.cohort_size]
        for name in names:
            self._give_one_sample(simulation, name, rng)
        store = Forgetful()
        host = host_of(simulation, store)
        changes, models = [], []
        for name in names:
            changes.append(self._change(host, simulation, name))
            models.append(model_of(simulation, name, store.last))
        seen = self._seen(changes, number)
        if "default limits" in self.situations:
            population_of(simulation).consented = consent_to(config, Limits())
            seen["default limits"] = [self._change(host, simulation, name) for name in names]
        for place, (name, model) in enumerate(zip(names, models, strict=True)):
            self.groups.append(number)
            by_situation = {situation: rows[place] for situation, rows in seen.items()}
            self._trial(simulation, name, model, by_situation, rng)

    def _give_one_sample(self, simulation: Simulation, name: str, rng: np.random.Generator) -> None:
        """Leaves one of its own samples, of a class with enough candidates."""
        labels = self.shadows.dataset.labels
        population = population_of(simulation)
        share = population.shares[name]
        enough = np.bincount(labels)[labels[share.train]] >= self.count
        rows = (
            share.train[enough]
            if enough.any()
            else np.flatnonzero(np.bincount(labels)[labels] >= self.count)
        )
        population.hold(name, rng.choice(rows, 1))

    def _change(self, host: ClientHost, simulation: Simulation, name: str) -> Numbers:
        """Nothing, if the client refuses."""
        task = self.shadows.task(simulation, name)
        answer = host.answer(task)
        if isinstance(answer, Failure):
            return np.zeros_like(flat(task.download.tensors))
        return flat(change_in(simulation, task, answer))

    def _seen(self, changes: list[Numbers], number: int) -> dict[Situation, list[Numbers]]:
        """Noise is as large as it is on a change that is as long as the clip."""
        found: dict[Situation, list[Numbers]] = {}
        first = number * len(changes)
        for situation in self.shadows.situations:
            if situation == "as it is":
                found[situation] = changes
            elif situation == "secure sum":
                found[situation] = [np.mean(changes, axis=0)] * len(changes)
            else:
                found[situation] = [
                    Noise(float(np.linalg.norm(change)) or 1.0, self.noise, first + place)(change)
                    for place, change in enumerate(changes)
                ]
        return found

    def _trial(
        self,
        simulation: Simulation,
        name: str,
        model: nn.Module,
        seen: Mapping[Situation, Numbers],
        rng: np.random.Generator,
    ) -> None:
        population, labels = population_of(simulation), self.shadows.dataset.labels
        (row,) = population.shares[name].train
        alike = np.flatnonzero(labels == labels[row])
        others = rng.choice(alike[alike != row], self.count - 1, replace=False)
        rows = rng.permutation(np.append(others, row))
        right = int(np.flatnonzero(rows == row)[0])
        batch = population.samples_of(rows).batch(slice(None))
        architecture = population.architectures[name]
        stranger = max(
            self.shadows.strangers,
            key=lambda known: (known.shares[labels[row]] > 0, known.architecture == architecture),
        )
        for sees, judge in ((KNOWN, model), (STRANGE, stranger.model)):
            gradients = _gradients(self.shadows, judge, batch)
            for situation, change in seen.items():
                guess = int(_cosines(gradients, -change).argmax())
                self.found[sees, situation].append(guess == right)

    def results(self) -> Iterator[AttackResult]:
        """All trials that there were, attacker by attacker."""
        groups, baseline = np.array(self.groups), 1 / self.count
        for (sees, situation), found in self.found.items():
            hits, trials = np.array(found, bool), len(found)
            is_summed = "secure sum" in (situation, *self.shadows.situations[:1])
            is_enough = trials >= FEWEST_CLIENTS
            if is_summed:
                is_enough = is_enough and len(set(self.groups)) >= FEWEST_GROUPS
                rng = np.random.default_rng(0)
                estimate = resampled(partial(_share, hits), groups, baseline, rng)
            else:
                estimate = share_of(int(hits.sum()), trials, baseline)
            yield AttackResult(
                IDENTIFICATION,
                sees,
                situation,
                FOUND,
                baseline=baseline,
                estimate=estimate,
                trials=trials,
                is_enough=is_enough,
                note=f"one sample, one step; {self.count} candidates of its class",
            )


def _share(hits: NDArray[np.bool_], weights: Numbers) -> float:
    return float(np.average(hits, weights=weights))


def _gradients(shadows: Shadows, model: nn.Module, batch: Batch) -> Numbers:
    """The gradient of each sample's loss with respect to the extractor, row by row."""
    extractor = extractor_of(shadows, batch.x, shadows.state.tensors)
    enhanced = extractor(batch.x).detach().requires_grad_()
    loss = cross_entropy(model(enhanced), batch.y, reduction="sum")  # samples do not mix in eval
    (backwards,) = torch.autograd.grad(loss, enhanced)
    parameters = dict(extractor.named_parameters())
    nothing = {name: torch.zeros_like(t) for name, t in shadows.state.tensors.items()}
    rows = []
    for x, back in zip(batch.x.split(1), backwards.split(1), strict=True):
        found = torch.autograd.grad((extractor(x) * back).sum(), list(parameters.values()))
        rows.append(flat(nothing | dict(zip(parameters, found, strict=True))))
    return np.array(rows)


def _cosines(rows: Numbers, change: Numbers) -> Numbers:
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(change)
    found: Numbers = np.divide(rows @ change, lengths, out=np.zeros(len(rows)), where=lengths > 0)
    return found
