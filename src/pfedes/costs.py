"""What learning costs: floating-point operations, and all costs until a target is reached."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from torch.utils.flop_counter import FlopCounterMode

T = TypeVar("T")


class FlopMeter:
    """Counts each kind of step once with torch's own counter; after that it only adds.

    `known` is shared among the meters of one process: equal keys must mean equal work.
    """

    def __init__(self, known: dict[Hashable, int] | None = None) -> None:
        self.known = {} if known is None else known
        self.total = 0

    def count(self, key: Hashable, work: Callable[[], T]) -> T:
        """Does the work and adds its cost to the total."""
        if key in self.known:
            result = work()
        else:
            with FlopCounterMode(display=False) as counter:
                result = work()
            self.known[key] = counter.get_total_flops()
        self.total += self.known[key]
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
