"""What learning costs: floating-point operations, and all costs until a target is reached."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

from torch.utils.flop_counter import FlopCounterMode

T = TypeVar("T")


class FlopMeter:
    """Counts one step of each kind with torch's own counter; after that it only multiplies.

    `known` holds what a sample costs in each kind of step. It is shared among the meters of one
    process: equal kinds must mean equal work.
    """

    def __init__(self, known: dict[Hashable, Fraction] | None = None) -> None:
        self.known = {} if known is None else known
        self._total = Fraction(0)

    @property
    def total(self) -> int:
        return round(self._total)

    def add(self, flops: int) -> None:
        """Adds what torch's counter does not know, such as a decomposition."""
        self._total += flops

    def count(self, kind: Hashable, samples: int, work: Callable[[], T]) -> T:
        """Does the work on so many samples and adds its cost to the total."""
        if kind in self.known:
            result = work()
        else:
            with FlopCounterMode(display=False) as counter:
                result = work()
            self.known[kind] = Fraction(counter.get_total_flops(), samples)
        self._total += samples * self.known[kind]
        return result


def until(accuracy: float, rounds: Iterable[Mapping[str, Any]]) -> dict[str, float | int | None]:
    """The first round that reaches an accuracy, with the floats and FLOPs spent until then."""
    floats = flops = 0
    for row in rounds:
        floats += row["floats_down"] + row["floats_up"]
        flops += row["flops"]
        if row["accuracy"] >= accuracy:
            return {
                "accuracy": accuracy,
                "round": row["round"],
                "floats": floats,
                "flops": flops,
            }
    return {"accuracy": accuracy, "round": None, "floats": None, "flops": None}
