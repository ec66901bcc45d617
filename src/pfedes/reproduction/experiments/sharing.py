"""What makes sharing pay? The part of the gain that vanishes when nothing travels."""

from dataclasses import replace
from typing import Any

from pfedes.formatting import count
from pfedes.reproduction.experiment import NOT_RUN, Exhibit, Experiment, Measure, Results
from pfedes.reproduction.experiments.tables import setting
from pfedes.reproduction.record import paired
from pfedes.reproduction.scale import Scale
from pfedes.reproduction.scenario import Setting, option
from pfedes.results.paired import difference
from pfedes.results.run import Run
from pfedes.results.table import Table

CELL = setting("pfedes", "cifar100", 100, homogeneous=False)
"""A client has few samples of many classes: here there is most to learn from others."""
ARMS: dict[str, dict[str, Any]] = {
    "as in the paper": {},
    "one pass, mu = 0.3": {"phase1": "drawn", "mu": 0.3},
    "width 32": {"width": 32},
    "residual": {"residual": True},
}
COLUMNS = (
    *("arm", "predicts by", "shared (%)", "own extractors (%)", "sharing gives", "verdict"),
    *("FLOP", "floats sent up"),
)


def cell(arm: str, sharing: str) -> Setting:
    """Trained so that both ways of predicting can be measured on it: neither changes training."""
    return replace(CELL, options=option(**ARMS[arm], sharing=sharing, inference="both"))


def wanted(_: Scale) -> list[Setting]:
    return [cell(arm, sharing) for arm in ARMS for sharing in ("global", "local")]


def by_raw_images(run: Run) -> dict[str, Any]:
    """Every client's test accuracy by F(x) alone, in the order of names."""
    clients = (run.client(name)[0] for name in sorted(run.manifest.clients))
    return {"accuracies": [client.score(client.model).accuracy for client in clients]}


def show(results: Results) -> Exhibit:
    """A row per arm and way of predicting."""
    rows, missing = [], []
    for arm in ARMS:
        shared, own = (results.record(cell(arm, sharing)) for sharing in ("global", "local"))
        if shared is None or own is None:
            missing.append(arm)
            continue
        costs = [count(shared.summary["flops"]), count(shared.summary["floats_up"])]
        gap = paired([shared], [own])
        assert gap is not None  # both have seed 0
        means = [f"{100 * record.accuracy:.2f}" for record in (shared, own)]
        rows.append([arm, "F(x) and F(G(x))", *means, str(gap), gap.verdict, *costs])
        raw = [
            results.measured(cell(arm, sharing), BY_RAW_IMAGES) for sharing in ("global", "local")
        ]
        if all(found is not None for found in raw):
            ours, theirs = (found["accuracies"] for found in raw if found is not None)
            gap = difference([ours], [theirs])
            means = [f"{100 * sum(values) / len(values):.2f}" for values in (ours, theirs)]
            rows.append([arm, "F(x)", *means, str(gap), gap.verdict, *costs])
    notes = [
        "Heterogeneous models, CIFAR-100, N=100, C=10 %, seed 0; mean accuracy over all clients. "
        "Own extractors: the same training, but every client keeps its own extractor and nothing "
        "travels.",
        "Sharing gives: the mean difference in points, client by client, with a 95 % bootstrap "
        "interval; not decided: the interval contains 0. FLOP and floats are those of the shared "
        "run.",
    ]
    if missing:
        notes.append(f"{NOT_RUN}: {', '.join(missing)}.")
    return Exhibit({"sharing": Table(COLUMNS, rows)}, notes=notes)


BY_RAW_IMAGES = Measure("raw_images", wanted, by_raw_images)
SHARING = Experiment(
    name="sharing",
    title="What makes sharing pay?",
    source="Not in the paper",
    settings=wanted,
    show=show,
    measures=(BY_RAW_IMAGES,),
)
