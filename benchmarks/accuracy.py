"""Whether what is faster is as accurate: bf16 beside float32, one drawn pass beside two.

    python benchmarks/accuracy.py OUT [precision] [phase1]

CIFAR-10 (set PFEDES_DATA), N = 20, C = 100 %, 20 rounds, E = E_fe = 1 for precision and E = 5,
E_fe = 1 for phase 1, seeds 0 to 2: hours on two cores. Run directories lie below OUT; what is there
is not trained again, what was interrupted is continued.
"""

import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pfedes import Config, Federation, StoreError, configure, open_run

SEEDS = (0, 1, 2)
COMMON = {"train.rounds": 20, "method.extractor_epochs": 1, "runtime.report": False}


def configured(method: str, seed: int, settings: Mapping[str, Any]) -> Config:
    own = {k: v for k, v in COMMON.items() if method == "pfedes" or not k.startswith("method.")}
    return configure(
        method=method, data="cifar10", clients=20, seed=seed, settings={**own, **settings}
    )


def seeded(method: str, settings: Mapping[str, Any]) -> Callable[[int], Config]:
    """What is run, by its seed."""
    return lambda seed: configured(method, seed, settings)


def precision() -> dict[str, dict[str, Callable[[int], Config]]]:
    """By method, then by precision."""
    return {
        method: {
            kind: seeded(method, {"train.epochs": 1, "train.precision": kind})
            for kind in ("float32", "bf16")
        }
        for method in ("pfedes", "standalone", "fedproto")
    }


def phase1() -> dict[str, dict[str, Callable[[int], Config]]]:
    """By method, then by what phase 1 sees."""
    return {
        "pfedes": {
            kind: seeded("pfedes", {"train.epochs": 5, "method.phase1": kind})
            for kind in ("both", "drawn")
        }
    }


COMPARISONS = {"precision": precision, "phase1": phase1}


def accuracy(config: Config, out: Path) -> float:
    """The mean test accuracy of all clients after the last round, trained as far as needed."""
    try:
        run = open_run(out)
        if not run.finished:
            run = Federation.resume(out).run()
    except StoreError:
        run = Federation(config, out=out).run()
    mean: float = run.summary["mean_accuracy"]
    return mean


def main() -> None:
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= COMPARISONS.keys():
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    for title in sys.argv[2:] or COMPARISONS:
        for method, kinds in COMPARISONS[title]().items():
            means, spreads = [], []
            for kind, config in kinds.items():
                found = [
                    100 * accuracy(config(seed), out / title / f"{method}-{kind}" / f"seed-{seed}")
                    for seed in SEEDS
                ]
                means.append(statistics.fmean(found))
                spreads.append(max(found) - min(found))
                values = ", ".join(f"{value:.2f}" for value in found)
                print(f"{method:12} {kind:8} {means[-1]:6.2f} %  ({values})", flush=True)
            difference = means[1] - means[0]
            within = "within" if abs(difference) <= max(spreads) else "BEYOND"
            print(
                f"{method:12} difference {difference:+.2f} points, {within} the spread over seeds "
                f"({max(spreads):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
