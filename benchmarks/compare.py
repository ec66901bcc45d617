"""Two measurements side by side, as ratios, and what got slower by more than a tenth.

    python benchmarks/compare.py [OLD.json NEW.json]

Without names: the two latest of benchmarks/history. Only figures of time and speed are compared.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HISTORY = Path(__file__).parent / "history"
TOLERATED = 1.1

Figures = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Change:
    """A figure then and now."""

    name: str
    old: float
    new: float
    slowness: float  # how many times slower it got; below 1, faster


def changes(old: Figures, new: Figures) -> Iterator[Change]:
    """Of all figures of time and speed that both measurements have."""
    before = dict(_figures(old))
    for key, value in _figures(new):
        if (then := before.get(key)) and value:
            section, row, column = key
            longer = value / then
            slowness = longer if _is_time(column) else 1 / longer
            yield Change(" / ".join(filter(None, (section, row, column))), then, value, slowness)


def _figures(figures: Figures) -> Iterator[tuple[tuple[str, str, str], float]]:
    for section, rows in figures.items():
        for row in rows:
            # What is no measure says which row it is: a model, a method, a number of clients.
            name = ", ".join(str(v) for k, v in row.items() if not isinstance(v, float))
            for column, value in row.items():
                if isinstance(value, float) and (_is_time(column) or _is_speed(column)):
                    yield (section, name, column), value


def _is_time(column: str) -> bool:
    return column in ("seconds", "milliseconds", "of standalone") or column.endswith(
        (", s", ", ms", " s")
    )


def _is_speed(column: str) -> bool:
    speeds = ("GFLOP/s", "of the peak", "times faster", "speed-up", "of what can be had")
    return column in speeds


def report(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What to print."""
    there, here = old["environment"], new["environment"]
    for which, about in (("old", there), ("new", here)):
        machine = f"{about['processor']}, {about['cores']} cores, torch {about['torch_build']}"
        yield f"{which}: {about['begun']}, commit {about['commit'] or 'unknown'}, {machine}"
    if any(there[key] != here[key] for key in ("processor", "cores", "torch_build")):
        yield "The machines differ: compare ratios, not times."
    found = list(changes(old["figures"], new["figures"]))
    yield ""
    for change in found:
        yield f"{1 / change.slowness:6.2f} times as fast  {change.name}"
    slower = [change for change in found if change.slowness > TOLERATED]
    yield ""
    yield f"{len(slower)} of {len(found)} figures got slower by more than 10 %"
    for change in sorted(slower, key=lambda change: -change.slowness):
        yield f"  {change.name}: {change.old:.3g} -> {change.new:.3g}"


def main() -> None:
    names = [Path(name) for name in sys.argv[1:]] or sorted(HISTORY.glob("*.json"))[-2:]
    if len(names) != 2:
        sys.exit("two measurements are needed: 'make bench' adds one to benchmarks/history")
    old, new = (json.loads(name.read_text()) for name in names)
    print("\n".join(report(old, new)))


if __name__ == "__main__":
    main()
