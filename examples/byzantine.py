"""What a few liars do to a federation, and what robust aggregation does about them.

    python examples/byzantine.py --out byzantine.png

Ten clients train pFedES on handwritten digits. Two of them upload another extractor than the one
they trained: its negative, or ten times it. Every aggregation rule is tried against both; a run
without liars shows what was to be had.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure

from pfedes import Federation, Payload, Run, configure
from pfedes.core.aggregation import norm
from pfedes.core.client import Card
from pfedes.core.protocol import Failure, Fleet, Reply, Scored, Task
from pfedes.fleet import make_fleet
from pfedes.population.simulation import Simulation
from pfedes.report.figures import STYLE
from pfedes.store.client_store import ClientStore

LIARS = ("client-0002", "client-0007")
ATTACKS = {"sign flipped": -1.0, "scaled by 10": 10.0}
RULES: dict[str, dict[str, Any]] = {
    "mean": {},
    "median": {"aggregation.kind": "median"},
    "trimmed mean": {"aggregation.kind": "trimmed_mean", "aggregation.trim": 0.2},
    "Krum": {"aggregation.kind": "krum", "aggregation.byzantine": 2},
    "mean, norm bounded": {"aggregation.max_norm": 3.0},
}


@dataclass
class LyingFleet:
    """A fleet some of whose clients upload a multiple of what they trained."""

    fleet: Fleet
    factor: float

    @property
    def places(self) -> int:
        return self.fleet.places

    @property
    def manner(self) -> str:
        return self.fleet.manner

    def enroll(self) -> list[Card]:
        return self.fleet.enroll()

    def round(self, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
        for answer in self.fleet.round(tasks):
            yield self._passed_on(answer) if isinstance(answer, Reply) else answer

    def _passed_on(self, reply: Reply) -> Reply:
        if reply.client not in LIARS:
            return reply
        lie = {name: self.factor * tensor for name, tensor in reply.payload.tensors.items()}
        return Reply(reply.client, Payload(lie, reply.payload.meta))

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Scored | Failure]:
        return self.fleet.evaluate(tasks)

    def close(self) -> None:
        self.fleet.close()


def federate(out: Path, settings: Mapping[str, Any], factor: float = 1.0) -> Run:
    """A run in which the liars multiply their uploads by a factor."""

    def lying(simulation: Simulation, store: ClientStore) -> Fleet:
        return LyingFleet(make_fleet(simulation, store), factor)

    return Federation(configure(settings=settings), out=out, fleet=lying).run()


def distance(run: Run, clean: Run) -> float:
    """How far the server's extractor is from that of the clean run, relative to its size."""
    ours, theirs = (r.store.server_state(r.manifest).tensors for r in (run, clean))
    return norm({name: ours[name] - theirs[name] for name in ours}) / norm(theirs)


def honest_accuracy(run: Run) -> float:
    """The mean over the clients that do not lie."""
    scores = run.manifest.scores.items()
    return float(torch.tensor([s.accuracy for n, s in scores if n not in LIARS]).mean())


def compare(settings: Mapping[str, Any], place: Path) -> list[dict[str, Any]]:
    """A row for every attack and rule, and one without either."""
    clean = federate(place / "clean", settings)
    rows: list[dict[str, Any]] = [
        {"attack": "none", "rule": "mean", "distance": 0.0, "accuracy": honest_accuracy(clean)}
    ]
    for attack, factor in ATTACKS.items():
        for rule, changes in RULES.items():
            run = federate(place / f"{attack}-{rule}", {**settings, **changes}, factor)
            figures = {"distance": distance(run, clean), "accuracy": honest_accuracy(run)}
            rows.append({"attack": attack, "rule": rule, **figures})
            print("{attack:14} {rule:20} {distance:8.3f} {accuracy:8.4f}".format(**rows[-1]))
    return rows


def figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Distances and accuracies side by side, a colour for each attack."""
    clean, *attacked = rows
    colours = dict(zip(ATTACKS, ("#0072b2", "#d55e00"), strict=True))
    with mpl.rc_context(STYLE):
        drawing = Figure(figsize=(8.4, 3.4))
        left, right = drawing.subplots(1, 2, sharey=True)
        for offset, (attack, colour) in zip((-0.2, 0.2), colours.items(), strict=True):
            mine = [row for row in attacked if row["attack"] == attack]
            places = [index + offset for index in range(len(mine))]
            left.barh(places, [row["distance"] for row in mine], 0.38, color=colour, label=attack)
            right.barh(places, [row["accuracy"] for row in mine], 0.38, color=colour)
        right.axvline(clean["accuracy"], color="black", linewidth=1, linestyle="--")
        right.annotate("no liars", (clean["accuracy"], -0.55), ha="right", va="bottom", fontsize=9)
        left.set(xscale="log", xlabel="distance from the clean extractor, in its sizes")
        left.set_yticks(range(len(RULES)), list(RULES))
        left.invert_yaxis()
        left.legend(frameon=False, loc="lower right")
        right.set(xlabel="accuracy of the eight honest clients", xlim=(0, 1.02))
    return drawing


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("byzantine.png"))
    parser.add_argument("--rounds", type=int, default=10)
    chosen = parser.parse_args()
    with TemporaryDirectory() as directory:
        found = compare({"train.rounds": chosen.rounds}, Path(directory))
    print("clean: {accuracy:.4f}".format(**found[0]))
    figure(found).savefig(chosen.out)
