"""Figure 6: the clients' representations in two dimensions."""

from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pfedes.models.head import represent
from pfedes.report.figures import GREY, STYLE
from pfedes.reproduction.experiment import Exhibit, Experiment, Measure, Results
from pfedes.reproduction.experiments.tables import setting
from pfedes.reproduction.plotting import leave_empty
from pfedes.reproduction.scenario import NAMES, label
from pfedes.results.run import Run
from pfedes.results.table import Table

METHODS = ("fedproto", "pfedes")
MARKS = "os^vD*PXd>"
COLOURS = mpl.color_sequences["petroff10"]
"""Ten that the colour-blind tell apart: as many as there are classes."""
SAMPLES = 100
"""Of each client's test images; all of them would hide one another."""


def measure(run: Run) -> dict[str, Any]:
    """Points in the plane, with class and client; and how well neighbours share their class."""
    from sklearn.manifold import TSNE
    from sklearn.metrics import silhouette_score

    representations, classes, clients = [], [], []
    for number, name in enumerate(sorted(run.manifest.clients)):
        batch = next(run.simulation.population.client(name).test.in_order(SAMPLES))
        model = run.model(name)
        with torch.no_grad():
            representations.append(represent(model, batch.x)[0].numpy())
        classes += batch.y.tolist()
        clients += [number] * len(batch.y)
    points = np.concatenate(representations)
    reduced = TSNE(
        perplexity=min(30.0, (len(points) - 1) / 3), init="pca", random_state=0
    ).fit_transform(points)
    kinds = np.array(clients) * (max(classes) + 1) + np.array(classes)
    return {
        "x": reduced[:, 0].round(3).tolist(),
        "y": reduced[:, 1].round(3).tolist(),
        "class": classes,
        "client": clients,
        "silhouette": float(silhouette_score(points, kinds)),
    }


def show(results: Results) -> Exhibit:
    """A panel per method."""
    rows = []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.3))
        for axes, method in zip(figure.subplots(1, len(METHODS)), METHODS, strict=True):
            found = results.measured(cell(method), MEASURE)
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
            axes.set_title(NAMES[method], fontsize=9)
            if found is None:
                leave_empty(axes)
                continue
            plot(axes, found)
            if not figure.legends:
                explain(figure, found)
            rows.append(
                [
                    NAMES[method],
                    str(len(found["x"])),
                    str(len(set(found["client"]))),
                    f"{found['silhouette']:.3f}",
                ]
            )
    columns = ["method", "images", "clients", "silhouette of (client, class) in 500 dimensions"]
    notes = [
        f"{label('cifar10', 10, results.scale.sources)}, heterogeneous; at most {SAMPLES} test "
        "images of each client, t-SNE with a fixed seed.",
        "The silhouette (-1 to 1) is taken in the representations themselves: distances between "
        "clusters in a t-SNE picture mean little. Every client has its own model, so its cluster "
        "lies apart whatever was learned.",
    ]
    return Exhibit({"tsne": Table(columns, rows)}, {"tsne": figure}, notes)


def plot(axes: Axes, found: dict[str, Any]) -> None:
    x, y, classes, clients = (np.array(found[key]) for key in ("x", "y", "class", "client"))
    for client in np.unique(clients):
        chosen = clients == client
        axes.scatter(
            x[chosen],
            y[chosen],
            c=[colour(kind) for kind in classes[chosen]],
            marker=mark(client),
            s=9,
            linewidths=0.2,
            edgecolors="white",
        )


def explain(figure: Figure, found: dict[str, Any]) -> None:
    """Below both panels: whose mark, and of which class the colour."""
    clients, classes = (sorted(set(found[key])) for key in ("client", "class"))
    entries = [(mark(client), GREY, f"client {client}") for client in clients]
    entries += [("o", colour(kind), f"class {kind}") for kind in classes]
    figure.legend(
        [Line2D([], [], linestyle="", marker=m, color=c, markersize=4) for m, c, _ in entries],
        [name for *_, name in entries],
        loc="outside lower center",
        ncols=5,
        fontsize=7,
        frameon=False,
    )


def mark(client: int) -> str:
    return MARKS[client % len(MARKS)]


def colour(kind: int) -> Any:
    return COLOURS[kind % len(COLOURS)]


def cell(method: str) -> Any:
    return setting(method, "cifar10", 10, homogeneous=False)


MEASURE = Measure("tsne", lambda scale: [cell(method) for method in METHODS], measure)
TSNE = Experiment(
    name="tsne",
    title="Representations of all clients, 500 to 2 dimensions",
    source="Figure 6",
    settings=lambda scale: [cell(method) for method in METHODS],
    show=show,
    measures=(MEASURE,),
)
