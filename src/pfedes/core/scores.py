"""How well a model does. Nothing heavy is imported here: waiting processes read scores, too."""

from dataclasses import dataclass

from pfedes.errors import WireError


@dataclass(frozen=True)
class Scores:
    """How many of a client's own samples a model classifies correctly.

    Attributes:
        val_correct: Correctly classified validation samples.
        val_total: All validation samples; may be 0.
        test_correct: Correctly classified test samples.
        test_total: All test samples.

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

    def __post_init__(self) -> None:
        fit = 0 <= self.val_correct <= self.val_total and (
            0 <= self.test_correct <= self.test_total > 0
        )
        if not fit:
            raise WireError(f"scores that cannot be: {self}")

    def check_totals(self, first: "Scores") -> None:
        """Checks that the numbers of samples are those of the client's first scores.

        Args:
            first: The scores with which the client enrolled.

        Raises:
            WireError: The numbers of samples have changed.
        """
        if (self.val_total, self.test_total) != (first.val_total, first.test_total):
            raise WireError(
                f"scores out of {self.val_total} validation and {self.test_total} test samples, it "
                f"began with {first.val_total} and {first.test_total}: these cannot change in a run"
            )

    @property
    def accuracy(self) -> float:
        """Share of test samples that are classified correctly, 0 to 1."""
        return self.test_correct / self.test_total

    @property
    def val_accuracy(self) -> float | None:
        """Share of validation samples that are classified correctly; None without any."""
        return self.val_correct / self.val_total if self.val_total else None
