"""How much of a run reaches the page. A page that is open for weeks must not grow with it."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

MOST_RUNS = 1000
MOST_POINTS = 300
MOST_CLIENTS = 100
MOST_TROUBLES = 20
MOST_CLASSES = 30
MOST_TEXT = 300

T = TypeVar("T")


def text(value: object) -> str:
    """Any value as text of bounded length: names and reasons may come from anybody."""
    whole = str(value)
    return whole if len(whole) <= MOST_TEXT else f"{whole[: MOST_TEXT - 1]}…"


def number(value: Any) -> float | int | None:
    """The value if it is a finite number: JSON has no others, and a page cannot draw them."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def thinned(items: Sequence[T]) -> tuple[T, ...]:
    """Every item, every second, every fourth ...: so many that at most MOST_POINTS are left.

    As the sequence grows, what is left of it only grows at its end, until the step doubles.
    """
    step = 1
    while (len(items) + step - 1) // step > MOST_POINTS:
        step *= 2
    return tuple(items[::step])
