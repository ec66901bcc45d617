"""Membership: which of a client's samples it trained on, and which it kept for testing.

An extractor learns to help a model with the samples it sees. So the attacker measures with
its own models how much smaller the loss on a sample is with the extractor that came back than with
the one that was sent. Candidates are one client's own samples, so that its classes do not help.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pfedes.audit.attempts import FEWEST_CLIENTS, FEWEST_GROUPS, AttackResult
from pfedes.audit.intervals import Bools, Numbers, area_between, resampled
from pfedes.audit.shadows import Shadow, Shadows, extractor_of, split
from pfedes.audit.sights import Noise, seen_by
from pfedes.core.samples import Batch, Samples
from pfedes.data.dataset import Progress
from pfedes.privacy.encoding import moved_by

MEMBERSHIP = "membership"
SEES = "the loss of a sample before and after, by models of others"
AREA, CAUGHT = "area under the ROC curve", "share of members above 99 % of the others"

FALSE_ALARMS = 0.01
FEWEST_OTHERS = 500
"""With fewer samples not trained on, the highest hundredth of them is too small."""

MOST_OF_A_CLIENT = 100
"""The most samples of one client that are examined, of those trained on and of the others."""


@dataclass(frozen=True)
class Candidates:
    """One client's samples by the attacker's scores, higher for those it takes for members."""

    scores: Numbers
    members: Bools

    @property
    def comparable(self) -> Numbers:
        """The scores in units in which all clients' are alike."""
        spread = float(self.scores.std()) or 1.0
        found: Numbers = (self.scores - np.median(self.scores)) / spread
        return found


def attempts_on_members(
    shadows: Shadows, made: Sequence[Shadow], noise: Noise, seed: int, progress: Progress
) -> Iterator[AttackResult]:
    """Both measures of the attack in every situation."""
    learn, test = split(made)
    if why := _why_not(shadows, learn, test):
        yield AttackResult(MEMBERSHIP, SEES, "as it is", AREA, note=why)
        return
    for done, situation in enumerate(shadows.situations, 1):
        seen = seen_by(situation, test, noise)
        found = list(_candidates(shadows, test, seen.changes, seed))
        is_enough = len(test) >= FEWEST_CLIENTS and len(set(seen.groups.tolist())) >= FEWEST_GROUPS
        others = sum(int((~each.members).sum()) for each in found)
        at_random = _shuffled(found, np.random.default_rng(seed))
        for measure, kind, baseline, enough in (
            (AREA, mean_area, 0.5, is_enough),
            (CAUGHT, caught, FALSE_ALARMS, is_enough and others >= FEWEST_OTHERS),
        ):
            rng = np.random.default_rng(seed)
            yield AttackResult(
                MEMBERSHIP,
                SEES,
                situation,
                measure,
                baseline=baseline,
                estimate=resampled(kind(found), seen.groups, baseline, rng),
                trials=len(test),
                is_enough=enough,
                shuffled=kind(at_random)(np.ones(len(test))),
            )
        progress("membership", done, len(shadows.situations))


def _why_not(shadows: Shadows, learn: Sequence[Shadow], test: Sequence[Shadow]) -> str:
    if why := shadows.why_no_extractor:
        return why
    if not test:
        return "fewer than three cohorts of shadow clients were made"
    if not all(shadow.whole for shadow in (*learn, *test)):
        return "the extractor has too many numbers to be kept for every shadow client"
    return ""


def _candidates(
    shadows: Shadows, test: Sequence[Shadow], changes: Numbers, seed: int
) -> Iterator[Candidates]:
    """Of each client, by what the server sees of its change."""
    judge = _Judge(shadows)
    population, cohort = shadows.base.population, -1
    for shadow, change in zip(test, changes, strict=True):
        if shadow.cohort != cohort:
            population, cohort = shadows.simulation(shadow.cohort).population, shadow.cohort
        client = population.client(shadow.name, shadows.strangers[0].model)
        rng = np.random.default_rng([seed, shadow.cohort])
        parts = {True: [client.train], False: [client.val, client.test]}
        batches = [
            (is_member, _some(samples, rng))
            for is_member, split_in in parts.items()
            for samples in split_in
            if len(samples)
        ]
        scores = [judge.drops(batch, change) for _, batch in batches]
        members = [np.full(len(batch), is_member) for is_member, batch in batches]
        yield Candidates(np.concatenate(scores), np.concatenate(members))


def _some(samples: Samples, rng: np.random.Generator) -> Batch:
    rows = rng.permutation(len(samples))[:MOST_OF_A_CLIENT]
    return samples.batch(torch.from_numpy(rows))


class _Judge:
    """Models of strangers that say how much an extractor's change helps with a sample."""

    def __init__(self, shadows: Shadows) -> None:
        self.shadows = shadows
        self.sent = shadows.state.tensors

    def drops(self, batch: Batch, change: Numbers) -> Numbers:
        """The decrease of each sample's loss, averaged over the models that know its class."""
        both = (self.sent, moved_by(self.sent, change))
        before, after = (self._enhanced(batch, tensors) for tensors in both)
        total, count = np.zeros(len(batch)), np.zeros(len(batch))
        for stranger in self.shadows.strangers:
            known = stranger.shares[batch.y.cpu().numpy()] > 0
            rows = torch.from_numpy(np.flatnonzero(known)).to(batch.y.device)
            if len(rows):
                losses = [_losses(stranger.model, x[rows], batch.y[rows]) for x in (before, after)]
                total[known] += losses[0] - losses[1]
                count += known
        return total / np.maximum(count, 1)

    @torch.no_grad()
    def _enhanced(self, batch: Batch, tensors: Mapping[str, Tensor]) -> Tensor:
        enhanced: Tensor = extractor_of(self.shadows, batch.x, tensors)(batch.x)
        return enhanced


@torch.no_grad()
def _losses(model: nn.Module, x: Tensor, y: Tensor) -> Numbers:
    found: Numbers = cross_entropy(model(x), y, reduction="none").cpu().double().numpy()
    return found


Statistic = Callable[[Numbers], float]


def mean_area(found: Sequence[Candidates]) -> Statistic:
    """How well scores put a client's members above its others, in the mean over clients."""
    areas = np.array(
        [area_between(each.scores[each.members], each.scores[~each.members]) for each in found]
    )

    def mean(weights: Numbers) -> float:
        return float(np.average(areas, weights=weights))

    return mean


def caught(found: Sequence[Candidates]) -> Statistic:
    """The share of members above all but a hundredth of the others, of all clients together."""
    scores = np.concatenate([each.comparable for each in found])
    members = np.concatenate([each.members for each in found])
    whose = np.repeat(np.arange(len(found)), [len(each.scores) for each in found])
    order = np.argsort(-scores, kind="stable")
    scores, members, whose = scores[order], members[order], whose[order]

    def share(weights: Numbers) -> float:
        counts = weights[whose]
        alarms = np.cumsum(counts * ~members)
        is_over = alarms > FALSE_ALARMS * alarms[-1]
        limit = scores[np.argmax(is_over)]
        above = counts * members * (scores > limit)
        return float(above.sum() / (counts * members).sum())

    return share


def _shuffled(found: Sequence[Candidates], rng: np.random.Generator) -> list[Candidates]:
    return [Candidates(each.scores, rng.permutation(each.members)) for each in found]
