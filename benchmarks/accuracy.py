"""What an option does to accuracy: one table for each question.

    python benchmarks/accuracy.py OUT [COMPARISON ...]

CIFAR-10 (set PFEDES_DATA), N = 20, C = 100 %, seeds 0 to 2: hours on two cores. Run directories lie
below OUT; what was interrupted is continued. Each finished run becomes a line of
history/accuracy.jsonl, and is not trained again. Without names: the tables of what is there.
"""

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compare import HISTORY

from pfedes import Config, Federation, StoreError, configure, open_run
from pfedes.store.environment import environment

ARCHIVE = HISTORY / "accuracy.jsonl"
SEEDS = (0, 1, 2)

Arm = tuple[str, Mapping[str, Any]]
"""A method and its settings."""

SHORT = {"train.rounds": 20, "train.epochs": 1}
ONE_EACH = {**SHORT, "method.extractor_epochs": 1}
FIVE_TO_ONE = {"train.rounds": 4, "train.epochs": 5, "method.extractor_epochs": 1}
BF16 = {"train.precision": "bf16"}

COMPARISONS: dict[str, dict[str, tuple[Arm, Arm]]] = {
    "precision": {
        "pfedes": (("pfedes", ONE_EACH), ("pfedes", {**ONE_EACH, **BF16})),
        "standalone": (("standalone", SHORT), ("standalone", {**SHORT, **BF16})),
        "fedproto": (("fedproto", SHORT), ("fedproto", {**SHORT, **BF16})),
    },
    "phase1": {
        "both, drawn": (
            ("pfedes", FIVE_TO_ONE),
            ("pfedes", {**FIVE_TO_ONE, "method.phase1": "drawn"}),
        )
    },
}
"""By title and row, what is usual and what is set against it."""

Key = tuple[str, str, int, int]


def archived() -> dict[Key, float]:
    """The mean test accuracy in percent of each finished run, by comparison, row, arm and seed."""
    if not ARCHIVE.exists():
        return {}
    lines = map(json.loads, ARCHIVE.read_text().splitlines())
    return {(line["of"], line["row"], line["arm"], line["seed"]): line["mean"] for line in lines}


def train(title: str, out: Path) -> None:
    """Trains what is missing: of every arm the first seed, then the second."""
    for seed in SEEDS:
        for row, arms in COMPARISONS[title].items():
            for arm, (method, settings) in enumerate(arms):
                key = (title, row, arm, seed)
                if key not in archived():
                    config = configure(
                        method=method,
                        data="cifar10",
                        clients=20,
                        seed=seed,
                        settings={**settings, "runtime.report": False},
                    )
                    name = f"{title}-{row.replace(', ', '-').replace(' ', '-')}-{arm}-{seed}"
                    _archive(key, accuracy(config, out / name))


def accuracy(config: Config, out: Path) -> float:
    """The mean test accuracy of all clients after the last round, trained as far as needed."""
    try:
        run = open_run(out)
        if not run.finished:
            run = Federation.resume(out).run()
    except StoreError:
        run = Federation(config, out=out).run()
    mean: float = run.summary["mean_accuracy"]
    return 100 * mean


def _archive(key: Key, mean: float) -> None:
    about = environment()
    where = {"commit": about["commit"], "processor": about["processor"]}
    line = dict(zip(("of", "row", "arm", "seed"), key, strict=True)) | {"mean": mean} | where
    ARCHIVE.parent.mkdir(exist_ok=True)
    with ARCHIVE.open("a") as file:
        file.write(json.dumps(line) + "\n")


def show(title: str) -> None:
    """The means over seeds, their difference, and the spread over seeds."""
    found = archived()
    print(f"\n{title}")
    for row in COMPARISONS[title]:
        arms = [[found.get((title, row, arm, seed)) for seed in SEEDS] for arm in (0, 1)]
        paired = [(a, b) for a, b in zip(*arms, strict=True) if a is not None and b is not None]
        if not paired:
            print(f"{row:28} not measured yet")
            continue
        first, second = zip(*paired, strict=True)
        difference = statistics.fmean(second) - statistics.fmean(first)
        spread = max(max(arm) - min(arm) for arm in (first, second))
        print(
            f"{row:28} {_list(first)}   {_list(second)}   {difference:+.2f} points, spread over "
            f"{len(paired)} seeds {spread:.2f}"
        )


def _list(values: tuple[float, ...]) -> str:
    each = ", ".join(f"{value:.2f}" for value in values)
    return f"{statistics.fmean(values):.2f} ({each})"


def main() -> None:
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= COMPARISONS.keys():
        sys.exit(__doc__)
    for title in sys.argv[2:]:
        train(title, Path(sys.argv[1]))
    for title in sys.argv[2:] or COMPARISONS:
        show(title)


if __name__ == "__main__":
    main()
