"""The theory as an experiment."""

from typing import Any

from pfedes.reproduction.experiment import Exhibit, Experiment, Measure, Results
from pfedes.reproduction.scale import SMOKE, Scale
from pfedes.reproduction.scenario import Setting, label
from pfedes.reproduction.theory.bounds import Measurements
from pfedes.reproduction.theory.figures import figures
from pfedes.reproduction.theory.measuring import PLAIN_SGD, measure
from pfedes.reproduction.theory.tables import findings, tables
from pfedes.results.run import Run

CLIENTS = 3
"""Measured of each run: the first by name."""


def cell(scale: Scale) -> Setting:
    """Every client in every round, plain SGD, every state kept; few images, to measure much."""
    size = {"data.limit": 3000, "train.rounds": 20, "train.epochs": 1, "train.batch_size": 64}
    if scale.name == SMOKE.name:
        size |= {"data.limit": 300, "train.rounds": 3, "train.batch_size": 16}
    size["runtime.keep_rounds"] = size["train.rounds"]
    return Setting(
        "pfedes", clients=10, participation=1.0, options=(*PLAIN_SGD.items(), *size.items())
    )


def take(run: Run) -> list[Any]:
    curvatures = min(5, 1 + run.manifest.round // 3)
    names = sorted(run.manifest.clients)[:CLIENTS]
    return [measure(run, name, curvatures=curvatures).to_json() for name in names]


def show(results: Results) -> Exhibit:
    """Estimates, bounds, and the proof step by step."""
    setting = cell(results.scale)
    found = results.measured(setting, MEASURE)
    if found is None:
        return Exhibit(notes=["Not run yet."])
    measured = [Measurements.from_json(one) for one in found]
    (config,) = results.scale.configs(setting)
    notes = [
        f"{label('cifar10', 10, results.scale.sources)}, {config.data.limit} images, "
        f"{config.train.rounds} rounds, batches of {config.train.batch_size}, plain SGD.",
        *findings(measured),
    ]
    return Exhibit(tables(measured), figures(measured), notes)


MEASURE = Measure("theory", lambda scale: [cell(scale)], take)
THEORY = Experiment(
    name="theory",
    title="Lemma 1 and Theorem 1 against measured gradients",
    source="Section 5",
    settings=lambda scale: [cell(scale)],
    show=show,
    measures=(MEASURE,),
    deviations=(
        "The paper measures nothing here. This run is small on purpose; the notes have its size.",
    ),
)
