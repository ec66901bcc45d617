"""Accuracy against epsilon: what noise with a budget costs pFedES, for 100 and 1,000 clients.

    python benchmarks/budget.py OUT [N ...]

A generated table of 20 numbers and six classes: 40 rows for each client, whose shares of the
classes are drawn from a Dirichlet distribution. Networks with one hidden layer, mode central, seeds
0 to 2; a fifth of the clients in each of ten rounds, so that each is in two releases. Runs
lie below OUT; what is there is not trained again. Writes OUT/budget.png.
"""

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import accuracy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import make_classification

from pfedes import Config, configure

CLIENTS = (100, 1000)
SEEDS = (0, 1, 2)
EPSILONS = (1.0, 8.0, 50.0)
CLIP = 0.15  # about the median change
FEATURES, CLASSES, ROWS, SPARE = 20, 6, 40, 3
NETWORK = """from torch import nn


def hidden(classes, shape):
    return nn.Sequential(nn.Linear(shape[0], 32), nn.ReLU(), nn.Linear(32, classes))
"""


def table(out: Path, clients: int) -> Path:
    """The rows of all clients, and beside them the network, written once."""
    place = out / f"rows-{clients}.csv"
    if place.exists():
        return place
    out.mkdir(parents=True, exist_ok=True)
    (out / "networks.py").write_text(NETWORK)
    rng = np.random.default_rng(0)
    inputs, labels = make_classification(
        SPARE * ROWS * clients,
        FEATURES,
        n_informative=12,
        n_redundant=0,
        n_classes=CLASSES,
        class_sep=1.5,
        random_state=0,
    )
    of_class = [iter(np.flatnonzero(labels == label)) for label in range(CLASSES)]
    lines = [",".join(["site", "label", *columns()])]
    for client in range(clients):
        wanted = rng.choice(CLASSES, size=ROWS, p=rng.dirichlet(np.ones(CLASSES)))
        for row in (next(of_class[label]) for label in wanted):
            numbers = [f"{number:.4f}" for number in inputs[row]]
            lines.append(",".join([f"site-{client:04d}", f"class-{labels[row]}", *numbers]))
    place.write_text("\n".join(lines) + "\n")
    return place


def columns() -> list[str]:
    return [f"x{number}" for number in range(FEATURES)]


def configured(out: Path, clients: int, method: str, seed: int, **settings: Any) -> Config:
    chosen = {
        "partition.kind": "natural",
        "table.site": "site",
        "table.label": "label",
        "table.numbers": columns(),
        "models.table": [f"{(out / 'networks.py').resolve()}:hidden"],
        "train.rounds": 10,
        "train.participation": 0.2,
        "train.epochs": 5,
        "train.lr": 0.1,
        "train.batch_size": 16,
        "runtime.fleet": "serial",
        "runtime.report": False,
        **settings,
    }
    if method == "pfedes":
        chosen["method.extractor_epochs"] = 5
    data = f"csv:{table(out, clients).resolve()}"
    return configure(method=method, data=data, seed=seed, settings=chosen)


def kinds() -> dict[str, tuple[str, dict[str, Any]]]:
    """What is compared: method and settings by name.

    With a budget every client answers twice. So it does elsewhere, or chance would decide who
    learns: "no noise" has a thousandth of the clip, and Standalone asks everybody in two rounds.
    """
    noisy = {"privacy.mode": "central", "privacy.clip": CLIP}
    budgets = {
        f"epsilon-{epsilon:g}": ("pfedes", {**noisy, "privacy.epsilon": epsilon})
        for epsilon in EPSILONS
    }
    return {
        "standalone": ("standalone", {"train.participation": 1.0, "train.rounds": 2}),
        "no noise": ("pfedes", {**noisy, "privacy.noise": 0.001}),
        **budgets,
    }


def measured(out: Path, clients: int) -> dict[str, list[float]]:
    """Per cent right in the mean over all clients, seed by seed, by what is compared."""
    found: dict[str, list[float]] = {}
    for name, (method, settings) in kinds().items():
        for seed in SEEDS:
            place = out / f"{clients}-{name}".replace(" ", "-") / f"seed-{seed}"
            config = configured(out, clients, method, seed, **settings)
            found.setdefault(name, []).append(accuracy(config, place))
        mean, spread = statistics.mean(found[name]), statistics.stdev(found[name])
        print(f"{clients:5}  {name:12} {mean:6.2f} ± {spread:.2f}", flush=True)
    return found


def draw(panels: Sequence[tuple[int, dict[str, list[float]]]], place: Path) -> None:
    """A panel for each number of clients: how far ahead of Standalone, seed by seed."""
    figure = Figure(figsize=(4.6 * len(panels), 3.2), layout="constrained")
    (row,) = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axes, (clients, found) in zip(row, panels, strict=True):
        panel(axes, found)
        axes.set(title=f"{clients:,} clients", xlabel="epsilon")
    row[0].set_ylabel("points ahead of Standalone")
    row[-1].legend(fontsize=8)
    figure.savefig(place, dpi=130)


def panel(axes: Axes, found: dict[str, list[float]]) -> None:
    names = [*(f"epsilon-{epsilon:g}" for epsilon in EPSILONS), "no noise"]
    places = [name.removeprefix("epsilon-") for name in names]
    ahead = [
        [mine - other for mine, other in zip(found[name], found["standalone"], strict=True)]
        for name in names
    ]
    for seed, by_seed in zip(SEEDS, zip(*ahead, strict=True), strict=True):
        axes.plot(places, by_seed, "o", markersize=4, alpha=0.6, label=f"seed {seed}")
    axes.plot(places, list(map(statistics.mean, ahead)), color="black", label="mean")
    axes.axhline(0, color="0.6", linestyle=":")


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    chosen = [int(number) for number in sys.argv[2:]] or CLIENTS
    panels = [(clients, measured(out, clients)) for clients in chosen]
    draw(panels, out / "budget.png")


if __name__ == "__main__":
    main()
