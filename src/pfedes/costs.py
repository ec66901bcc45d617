"""What learning costs: floating-point operations, and all costs until a target is reached."""

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

from torch.utils._python_dispatch import TorchDispatchMode

from pfedes.flops import formula_of, is_costly

T = TypeVar("T")

log = logging.getLogger(__name__)


class CountedFlops(TorchDispatchMode):
    """Adds up the formulas of every operation that is done.

    As torch's FlopCounterMode does, but without its import of the compiler, which would add more
    than a second to the start of every process; and `uncounted` names what has no formula.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's has no annotations
        self.total = 0
        self.uncounted: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # asked by the base class: nothing is compiled here, so nothing to hide from

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        formula = formula_of(func)
        if formula is None:
            with self:  # what consists of other operations is counted as these
                if (parts := func.decompose(*args, **kwargs)) is not NotImplemented:
                    return parts
        result = func(*args, **kwargs)
        if formula is not None:
            try:
                self.total += formula(*args, **kwargs, out_val=result)
            except Exception:  # of tensors that have no one shape; no reason to end a training
                self.uncounted.add(str(func))
        elif is_costly(func):
            self.uncounted.add(str(func))
        return result


@cache  # once in a process: every step of every client would say the same
def _admit_ignorance_of(operation: str) -> None:
    log.warning("FLOPs are too low: there is no formula for %s", operation)


class FlopMeter:
    """Counts one step of each kind by formulas; after that it only multiplies.

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
            with CountedFlops() as counted:
                result = work()
            for operation in sorted(counted.uncounted):
                _admit_ignorance_of(operation)
            self.known[kind] = Fraction(counted.total, samples)
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
