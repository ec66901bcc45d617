"""Compare four ways to train on the four hospitals' rows, over five seeds:

    python examples/heart/hospitals.py heart.csv OUT

trains each hospital alone, pFedES, FedProto, and each hospital's network on the pooled rows of all,
which no federation may do: what there is to be gained. Prints a Markdown table.
"""

import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes import Config, Federation, Run, configure, open_run
from pfedes.core.client import Client
from pfedes.core.samples import Samples

HERE = Path(__file__).parent
SEEDS = range(5)
METHODS = {"standalone": "alone", "pfedes": "pFedES", "fedproto": "FedProto"}
POOLED = "pooled rows"
T_95 = 2.776  # Student's t for five seeds

Scores = dict[str, tuple[float, float]]
"""Balanced accuracy and AUC by hospital; NaN where the test rows are all of one class."""


def scores(labels: Tensor, chances: Tensor) -> tuple[float, float]:
    """Of the test rows of one hospital, given the probability of disease."""
    if len(set(labels.tolist())) < 2:
        return float("nan"), float("nan")
    balanced = balanced_accuracy_score(labels, chances > 0.5)
    return float(balanced), float(roc_auc_score(labels, chances))


def trained(config: Config, out: Path) -> Run:
    if not out.exists():
        Federation(config, out=out).run()
    return open_run(out)


def of_run(run: Run) -> Scores:
    """Of the models of the round that is best by validation."""
    found = {}
    for name in sorted(run.manifest.clients):
        test = run.client(name)[0].test
        model = run.personal(name, best=True)
        found[name] = scores(test.labels, model.probabilities(test.inputs)[:, 1])
    return found


def of_pooled(run: Run) -> Scores:
    """Each hospital's network, trained on everybody's training rows with the same SGD."""
    population, train = run.simulation.population, run.config.train
    clients = {name: population.client(name) for name in population.names}
    inputs, labels = joined(clients, lambda client: client.train)
    val_inputs, val_labels = joined(clients, lambda client: client.val)
    found = {}
    for name, client in clients.items():
        torch.manual_seed(run.config.seed)
        model = client.model
        optimiser = torch.optim.SGD(
            model.parameters(), train.lr, train.momentum, weight_decay=train.weight_decay
        )
        best, chances = -1.0, torch.empty(0)
        for _ in range(train.rounds * train.epochs):
            model.train()
            for rows in torch.randperm(len(labels)).split(train.batch_size):
                optimiser.zero_grad()
                F.cross_entropy(model(inputs[rows]), labels[rows]).backward()
                optimiser.step()
            right = (probabilities(model, val_inputs).argmax(1) == val_labels).float().mean().item()
            if right > best:
                best, chances = right, probabilities(model, client.test.inputs)[:, 1]
        found[name] = scores(client.test.labels, chances)
    return found


def joined(clients: dict[str, Client], split: Callable[[Client], Samples]) -> tuple[Tensor, Tensor]:
    parts = [split(client) for client in clients.values()]
    return torch.cat([p.inputs for p in parts]), torch.cat([p.labels for p in parts])


def probabilities(model: nn.Module, inputs: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        found: Tensor = model(inputs)
    return found.softmax(1)


def with_interval(values: list[float]) -> str:
    """The mean over seeds and its 95 % interval; seeds without a value are left out and counted."""
    known = [100 * value for value in values if not np.isnan(value)]
    if len(known) < len(SEEDS):
        return f"{statistics.mean(known):.1f} ({len(known)} seeds)" if known else "-"
    half = T_95 * statistics.stdev(known) / len(known) ** 0.5
    return f"{statistics.mean(known):.1f} ± {half:.1f}"


def table(found: dict[str, list[Scores]]) -> Iterator[str]:
    hospitals = sorted(next(iter(found.values()))[0])
    for place, measure in enumerate(("balanced accuracy", "AUC")):
        yield f"| {measure}, % | {' | '.join(hospitals)} | mean |"
        yield "|---|" + "---:|" * (len(hospitals) + 1)
        for name, seeds in found.items():
            cells = [with_interval([s[h][place] for s in seeds]) for h in hospitals]
            means = [float(np.nanmean([s[h][place] for h in hospitals])) for s in seeds]
            yield f"| {name} | {' | '.join(cells)} | {with_interval(means)} |"
        yield ""


def main(data: Path, out: Path) -> None:
    found: dict[str, list[Scores]] = {name: [] for name in (*METHODS.values(), POOLED)}
    for seed in SEEDS:
        for method, name in METHODS.items():
            config = configure(
                HERE / "heart.toml",
                data=f"csv:{data}",
                settings={"seed": seed, "method.name": method, "runtime.report": False},
            )
            run = trained(config, out / f"{method}-{seed}")
            found[name].append(of_run(run))
        found[POOLED].append(of_pooled(run))
    print("\n".join(table(found)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
