"""How well a model does. Nothing heavy is imported here: waiting processes read scores, too."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from pfedes.core.measures import Measures, Metric, Tally
from pfedes.errors import WireError

COUNTS = ("val_correct", "val_total", "test_correct", "test_total")
"""The scores that every reply carries; what is known class by class stays at a participant."""


@dataclass(frozen=True)
class Scores:
    """How many of a client's own samples a model classifies correctly.

    Attributes:
        val_correct: Correctly classified validation samples.
        val_total: All validation samples; may be 0.
        test_correct: Correctly classified test samples.
        test_total: All test samples.
        measures: Results class by class; None if they are unknown or stay with the participant.

    Raises:
        WireError: The numbers contradict each other.

    Example:
        >>> from pfedes import Scores
        >>> Scores(val_correct=0, val_total=0, test_correct=3, test_total=4).accuracy
        0.75
    """

    val_correct: int
    val_total: int
    test_correct: int
    test_total: int
    measures: Annotated[Measures | None, Field(exclude_if=lambda value: value is None)] = None

    def __post_init__(self) -> None:
        fit = 0 <= self.val_correct <= self.val_total and (
            0 <= self.test_correct <= self.test_total > 0
        )
        if not fit:
            raise WireError(f"impossible scores: {self}")
        if (known := self.measures) is not None:
            sums = [n for tally in (known.val, known.test) for n in (tally.correct, tally.samples)]
            if sums != list(self.counts.values()):
                raise WireError(
                    f"scores that differ from the sum over their classes: {self.counts}"
                )

    @classmethod
    def from_counts(cls, counts: Mapping[str, Any], measures: Measures | None = None) -> "Scores":
        """Makes scores from metadata.

        Args:
            counts: The four counts by name; other entries are ignored.
            measures: Results class by class, if they are known.

        Returns:
            The scores, without the other entries.
        """
        val_correct, val_total, test_correct, test_total = (counts[name] for name in COUNTS)
        return cls(val_correct, val_total, test_correct, test_total, measures)

    @property
    def counts(self) -> dict[str, int]:
        """The four counts by their names."""
        return {name: getattr(self, name) for name in COUNTS}

    @property
    def plain(self) -> "Scores":
        """The counts alone."""
        return replace(self, measures=None)

    @property
    def val(self) -> Tally | None:
        """Validation results class by class; None if unknown."""
        return self.measures.val if self.measures is not None else None

    @property
    def test(self) -> Tally | None:
        """Test results class by class; None if unknown."""
        return self.measures.test if self.measures is not None else None

    def by(self, metric: Metric) -> float | None:
        """Returns a metric of the test samples; None if it is unknown or undefined.

        Args:
            metric: `accuracy`, `balanced_accuracy`, `macro_f1` or `auc`.
        """
        if metric == "accuracy":
            return self.accuracy
        return self.test.by(metric) if self.test is not None else None

    def val_by(self, metric: Metric) -> float | None:
        """Returns a metric of the validation samples; None if it is unknown or undefined.

        Args:
            metric: As of `by`.
        """
        if metric == "accuracy":
            return self.val_accuracy
        return self.val.by(metric) if self.val is not None else None

    def check_totals(self, first: "Scores") -> None:
        """Checks that the numbers of samples are those of the client's first scores.

        Args:
            first: The scores with which the client enrolled.

        Raises:
            WireError: The numbers of samples have changed.
        """
        if (self.val_total, self.test_total) != (first.val_total, first.test_total):
            raise WireError(
                f"scores out of {self.val_total} validation and {self.test_total} test "
                f"samples, but the run began with {first.val_total} and {first.test_total}: "
                "these numbers cannot change during a run"
            )

    @property
    def accuracy(self) -> float:
        """Share of test samples that are classified correctly, 0 to 1."""
        return self.test_correct / self.test_total

    @property
    def val_accuracy(self) -> float | None:
        """Share of validation samples that are classified correctly; None without any."""
        return self.val_correct / self.val_total if self.val_total else None
