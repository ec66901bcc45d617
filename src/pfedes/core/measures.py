"""How well a model does, class by class: what the accuracy alone does not show.

The definitions are scikit-learn's, and tests compare every number with it. They are computed here
from counts, since clients are measured in every round: importing `sklearn.metrics` costs a worker
process as much as importing torch. Nothing heavy is imported here: `core/tallying.py` counts.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from pfedes.errors import WireError

Metric = Literal["accuracy", "balanced_accuracy", "macro_f1", "auc"]

METRICS: dict[Metric, str] = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "auc": "AUC",
}
"""Names of the measures for people."""

Label = Annotated[int, Field(ge=0)]
Number = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Tally:
    """The predictions of a model on one split by class, and how well it ranks samples."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    counts: tuple[tuple[Label, Label, Number], ...]
    """(class, what it was called, how many samples), ascending; pairs without samples left out."""
    areas: tuple[tuple[Label, Share], ...] = ()
    """(class, area under the ROC curve of that class against the rest), where there are both."""

    def __post_init__(self) -> None:
        pairs, labels = [(*pair[:2],) for pair in self.counts], [label for label, _ in self.areas]
        if pairs != sorted(set(pairs)) or labels != sorted(set(labels)):
            raise WireError("the classes of a tally must ascend, each once")

    @property
    def samples(self) -> int:
        return sum(count for *_, count in self.counts)

    @property
    def correct(self) -> int:
        return sum(count for label, call, count in self.counts if label == call)

    @property
    def labels(self) -> set[int]:
        """All classes that it speaks of."""
        return {*self.held, *self.called, *(label for label, _ in self.areas)}

    @cached_property
    def held(self) -> Counter[int]:
        """How many samples there are of each class."""
        return _summed((label, count) for label, _, count in self.counts)

    @cached_property
    def called(self) -> Counter[int]:
        """Number of samples that were predicted as each class, correctly or not."""
        return _summed((call, count) for _, call, count in self.counts)

    @cached_property
    def right(self) -> Counter[int]:
        """Number of samples of each class that were predicted correctly."""
        return _summed((label, count) for label, call, count in self.counts if label == call)

    @property
    def baseline(self) -> float | None:
        """The accuracy of always naming the commonest class."""
        return max(self.held.values()) / self.samples if self.counts else None

    @property
    def only_class(self) -> int | None:
        """The class predicted for all samples, if they are of several classes; else None."""
        if len(self.called) > 1 or len(self.held) < 2:
            return None
        return next(iter(self.called))

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.samples if self.counts else None

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean sensitivity of the classes that there are samples of."""
        return _mean(self.right[label] / count for label, count in self.held.items())

    @property
    def macro_f1(self) -> float | None:
        """The mean F1 of the classes that samples have or were predicted as."""
        classes = self.held.keys() | self.called.keys()
        both = {label: self.held[label] + self.called[label] for label in sorted(classes)}
        return _mean(2 * self.right[label] / count for label, count in both.items())

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve; of several classes the mean, each against the rest."""
        return _mean(area for _, area in self.areas)

    def sensitivity(self, label: int) -> float | None:
        """The share of a class's samples that were predicted as this class."""
        return self.right[label] / self.held[label] if self.held[label] else None

    def specificity(self, label: int) -> float | None:
        """The share of the other classes' samples that were not predicted as this class."""
        others = self.samples - self.held[label]
        wrongly = self.called[label] - self.right[label]
        return 1 - wrongly / others if others else None

    def by(self, metric: Metric) -> float | None:
        value: float | None = getattr(self, metric)
        return value


@dataclass(frozen=True)
class Measures:
    """The results class by class on validation and test samples."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    val: Tally
    test: Tally

    def check_classes(self, count: int) -> None:
        """Raises a WireError for a class that is not among so many."""
        found = {label for tally in (self.val, self.test) for label in tally.labels}
        if max(found, default=0) >= count:
            raise WireError(f"measures of class {max(found)}, there are {count}")

    def to_text(self) -> str:
        return _MEASURES.dump_json(self).decode()

    @classmethod
    def from_text(cls, text: str) -> "Measures":
        """Reads what `to_text` wrote; raises a WireError for anything else."""
        try:
            return _MEASURES.validate_json(text)
        except ValidationError as error:
            raise WireError(f"measures that cannot be read: {error.errors()[0]['msg']}") from None


_MEASURES = TypeAdapter(Measures)


def added(tallies: Iterable[Tally]) -> Tally:
    """All samples of several models in one table. Ranks of different models cannot be joined."""
    counts: Counter[tuple[int, int]] = Counter()
    for tally in tallies:
        for label, call, count in tally.counts:
            counts[label, call] += count
    return Tally(tuple((label, call, n) for (label, call), n in sorted(counts.items())))


def mean_of(
    tallies: Iterable[Tally | None], value: Callable[[Tally], float | None]
) -> float | None:
    """Unweighted over the clients of which it is known; None if it is of none."""
    known = [tally for tally in tallies if tally is not None]
    return _mean(number for tally in known if (number := value(tally)) is not None)


def _summed(pairs: Iterable[tuple[int, int]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for label, count in pairs:
        total[label] += count
    return total


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None
