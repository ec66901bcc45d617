"""Two secrets that uploads of shadow clients may reveal: classes and architecture."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pfedes.audit.attempts import FEWEST_CLIENTS, FEWEST_GROUPS, AttackResult
from pfedes.audit.guessing import guesses, scores_of_classes
from pfedes.audit.intervals import Bools, Ranking, resampled, share_of
from pfedes.audit.shadows import Shadow, split
from pfedes.audit.sights import Look, Noise, metadata_views, numbers_sent, seen_by
from pfedes.core.wire import MetaSpec
from pfedes.data.dataset import Progress, silent
from pfedes.results.findings import Situation

CLASSES, ARCHITECTURE = "class presence", "architecture"
AREA, RIGHT = "area under the ROC curve", "share of right guesses"

Pair = tuple[Look, Look]
"""What the attacker sees of the clients to learn from, and of those to attack."""


def attempts_on(
    shadows: Sequence[Shadow],
    listed: Mapping[str, MetaSpec],
    noise: Noise,
    situations: Sequence[Situation],
    seed: int,
    progress: Progress = silent,
) -> Iterator[AttackResult]:
    """Both attacks by every view in every situation, one after the other."""
    learn, test = split(shadows)
    if not test:
        why = "fewer than three cohorts of shadow clients were made"
        for attack in (CLASSES, ARCHITECTURE):
            yield AttackResult(attack, "", "as it is", "", note=why)
        return
    guessing = Guessing(learn, test, seed)
    alone = np.arange(len(test))
    learned, tested = metadata_views(learn, listed), metadata_views(test, listed)
    for pair in zip(learned, tested, strict=True):
        yield from guessing.by("as it is", pair, alone)
    done, of_all = len(learned), len(learned) + 3 * len(situations)
    progress("attacks", done, of_all)
    if len({len(shadow.change) for shadow in shadows}) > 1:
        yield AttackResult(
            CLASSES, "the numbers", "as it is", "", note="clients send different tensors"
        )
        return
    if not len(shadows[0].change):
        why = "nothing but metadata leaves"
        yield AttackResult(CLASSES, "the numbers", "as it is", "", note=why)
        return
    for situation in situations:
        known, seen = (seen_by(situation, part, noise) for part in (learn, test))
        pairs = zip(known.views(numbers_sent(learn)), seen.views(numbers_sent(test)), strict=True)
        for pair in pairs:
            yield from guessing.by(situation, pair, seen.groups)
            done += 1
            progress("attacks", done, of_all)


class Guessing:
    """A secret that is known of the first clients, and guessed of the others."""

    def __init__(self, learn: Sequence[Shadow], test: Sequence[Shadow], seed: int) -> None:
        self.learn, self.test = learn, test
        self.seed = seed

    def by(
        self, situation: Situation, pair: Pair, groups: NDArray[np.int64]
    ) -> Iterator[AttackResult]:
        """Both attacks by one view; clients of one group cannot be told apart."""
        yield self._classes(situation, pair, groups)
        yield self._architecture(situation, pair, groups)

    def _classes(self, situation: Situation, pair: Pair, groups: NDArray[np.int64]) -> AttackResult:
        known, truth = presence(self.learn), presence(self.test)
        view = pair[0].name
        if not any(have.any() and not have.all() for have in truth.T):
            return AttackResult(
                CLASSES, view, situation, AREA, note="all clients hold the same classes"
            )
        ranking = Ranking(scores_of_classes(*pair, known), truth)
        rng = np.random.default_rng(self.seed)
        at_random = scores_of_classes(*pair, rng.permutation(known))
        return AttackResult(
            CLASSES,
            view,
            situation,
            AREA,
            baseline=0.5,
            estimate=resampled(ranking.area, groups, 0.5, rng),
            trials=len(self.test),
            is_enough=self._is_enough(groups),
            shuffled=Ranking(at_random, truth).area(np.ones(len(truth))),
        )

    def _architecture(
        self, situation: Situation, pair: Pair, groups: NDArray[np.int64]
    ) -> AttackResult:
        known, truth = ([s.architecture for s in part] for part in (self.learn, self.test))
        view = pair[0].name
        if len(set(known)) == 1:
            return AttackResult(
                ARCHITECTURE, view, situation, RIGHT, note="all clients have the same architecture"
            )
        largest = Counter(truth).most_common(1)[0][1] / len(truth)
        right = np.array(guesses(*pair, known)) == np.array(truth)
        rng = np.random.default_rng(self.seed)
        shuffled = [known[place] for place in rng.permutation(len(known))]
        if len(set(groups.tolist())) == len(groups):
            estimate = share_of(int(right.sum()), len(right), largest)
        else:
            estimate = resampled(
                lambda weights: float(np.average(right, weights=weights)), groups, largest, rng
            )
        return AttackResult(
            ARCHITECTURE,
            view,
            situation,
            RIGHT,
            baseline=largest,
            estimate=estimate,
            trials=len(self.test),
            is_enough=self._is_enough(groups),
            shuffled=float((np.array(guesses(*pair, shuffled)) == np.array(truth)).mean()),
        )

    def _is_enough(self, groups: NDArray[np.int64]) -> bool:
        return len(groups) >= FEWEST_CLIENTS and len(set(groups.tolist())) >= FEWEST_GROUPS


def presence(shadows: Sequence[Shadow]) -> Bools:
    """Whether a client has at least half as much of a class as if all were equal."""
    shares = np.array([shadow.shares for shadow in shadows])
    found: Bools = shares >= 0.5 / shares.shape[1]
    return found
