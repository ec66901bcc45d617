"""Which client holds which classes, as facts, a picture and a table."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pfedes.formatting import between, listed
from pfedes.report.figures import partition_figure
from pfedes.report.grid import MOST_ROWS, Grid, number, text

if TYPE_CHECKING:
    from pfedes.population.base import Population
    from pfedes.population.simulation import Simulation

MOST_CLASSES = 12  # named in a row; the picture shows the others too


@dataclass(frozen=True)
class Holdings:
    """The partition of a simulation. Facts are about all clients, the rest about the first."""

    samples: str  # of a client, least to most
    classes: str  # of a client
    holders: str  # of a class
    clients: int
    shown: int
    grid: Grid
    figure: Figure


def holdings_of(simulation: "Simulation") -> Holdings:
    population = simulation.population
    names = population.class_names
    counts = np.array([held_by(population, client) for client in population.names])
    rows = []
    for client, own in zip(population.names[:MOST_ROWS], counts, strict=False):
        parts = population.labels(client).values()
        mine = [f"{names[c]}: {own[c]:,}" for c in np.argsort(-own, kind="stable") if own[c]]
        rows.append(
            [
                text(client),
                *(number(len(part)) for part in parts),
                number(len(mine)),
                text(listed(mine, MOST_CLASSES)),
            ]
        )
    return Holdings(
        samples=_range(counts.sum(axis=1)),
        classes=_range((counts > 0).sum(axis=1)),
        holders=_range((counts > 0).sum(axis=0)),
        clients=len(counts),
        shown=len(rows),
        grid=Grid(
            "Samples of each client, by class",
            ["client", "train", "validation", "test", "classes", "samples of each class"],
            rows,
            ascending=0,
        ),
        figure=partition_figure(
            counts[:MOST_ROWS],
            names,
            population.names[:MOST_ROWS] if simulation.config.participants else (),
        ),
    )


def held_by(population: "Population", client: str) -> NDArray[np.int64]:
    """How many samples of each class a client has, in all its splits."""
    labels = np.concatenate(list(population.labels(client).values()))
    return np.bincount(labels, minlength=len(population.class_names))


def _range(values: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
    return between(int(values.min()), int(values.max()))
