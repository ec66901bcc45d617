"""Dealing a data set to clients, and each client's share to train, validation and test.

The partition by classes is that of pFedHN, which the paper follows, with its faults mended: no
client holds a class twice, no class runs out of shares, no sample is lost to rounding.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from pfedes.errors import PartitionError
from pfedes.section import Section

log = logging.getLogger(__name__)

Rows = NDArray[np.int64]


def _is_split(shares: tuple[float, float, float]) -> tuple[float, float, float]:
    train, _, test = shares
    if min(shares) < 0 or train <= 0 or test <= 0 or abs(sum(shares) - 1) > 1e-9:
        raise ValueError("must be three shares that add up to 1, with some for train and test")
    return shares


class PartitionConfig(Section):
    """Who gets which samples."""

    kind: Literal["classes", "dirichlet", "iid"] = Field(
        "classes", description="classes (the paper's) | dirichlet | iid"
    )
    clients: int = Field(10, ge=1, description="N, the number of clients")
    classes_per_client: int = Field(2, ge=1, description="classes only: how many each client holds")
    alpha: float = Field(0.5, gt=0, description="dirichlet only: small = every client differs")
    split: Annotated[tuple[float, float, float], AfterValidator(_is_split)] = Field(
        (0.8, 0.1, 0.1), description="train, validation, test share of each client's data"
    )


@dataclass(frozen=True)
class Share:
    """Row numbers of one client's three splits."""

    train: Rows
    val: Rows
    test: Rows

    def rows(self) -> Rows:
        rows: Rows = np.concatenate([self.train, self.val, self.test])
        return rows


def partition(labels: Rows, config: PartitionConfig, rng: np.random.Generator) -> list[Share]:
    """One share per client: disjoint, and never without training or test samples."""
    deal = {"classes": _by_classes, "dirichlet": _by_dirichlet, "iid": _evenly}[config.kind]
    return [_split(labels, rows, config.split, rng) for rows in deal(labels, config, rng)]


def apportion(total: int, weights: Sequence[float] | NDArray[np.generic]) -> Rows:
    """Whole numbers in proportion to weights that add up to `total` (largest remainder)."""
    exact = np.asarray(weights, np.float64)
    exact = exact / exact.sum() * total
    counts: Rows = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: total - counts.sum()]] += 1
    return counts


def _by_classes(labels: Rows, config: PartitionConfig, rng: np.random.Generator) -> list[Rows]:
    """Each client holds c distinct classes, of each a share drawn from uniform(0.4, 0.6)."""
    classes, sizes = np.unique(labels, return_counts=True)
    per_client, clients = config.classes_per_client, config.clients
    if per_client > len(classes):
        raise PartitionError(
            f"partition.classes_per_client = {per_client}, but the data has {len(classes)} classes"
        )
    least = 2 if per_client == 1 else 1  # enough for a training and a test sample
    holders_at_most = int(sizes.min()) // least
    if math.ceil(per_client * clients / len(classes)) > holders_at_most:
        _too_many(clients, len(classes) * holders_at_most // per_client, len(labels))

    holders = _assign_classes(len(classes), per_client, clients, rng)
    parts: list[list[Rows]] = [[] for _ in range(clients)]
    for label, holding in zip(classes, holders, strict=True):
        if not holding:
            log.warning("class %s has no client: %d x %d is too few", label, clients, per_client)
            continue
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.uniform(0.4, 0.6, len(holding))
        counts = _at_least(least, apportion(len(rows), shares))
        for client, piece in zip(holding, np.split(rows, counts.cumsum()[:-1]), strict=True):
            parts[client].append(piece)
    return [np.concatenate(pieces) for pieces in parts]


def _assign_classes(
    classes: int, per_client: int, clients: int, rng: np.random.Generator
) -> list[list[int]]:
    """The clients that hold each class.

    Every client takes the classes with the most places left, ties at random. The places left then
    never differ by more than one, so there are always enough distinct classes.
    """
    places = np.full(classes, per_client * clients // classes)
    places[rng.choice(classes, per_client * clients % classes, replace=False)] += 1
    holders: list[list[int]] = [[] for _ in range(classes)]
    for client in range(clients):
        order = np.lexsort((rng.random(classes), -places))
        for label in order[:per_client]:
            places[label] -= 1
            holders[label].append(client)
    return holders


def _by_dirichlet(labels: Rows, config: PartitionConfig, rng: np.random.Generator) -> list[Rows]:
    """Each class is spread over the clients by proportions drawn from Dirichlet(alpha)."""
    _enough_for_all(labels, config.clients)
    parts: list[list[Rows]] = [[] for _ in range(config.clients)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        # The smallest alphas underflow to all zeros; then one client takes the class.
        shares = rng.dirichlet(np.full(config.clients, config.alpha))
        if not shares.sum() > 0:
            shares = np.eye(config.clients)[rng.integers(config.clients)]
        counts = apportion(len(rows), shares)
        for part, piece in zip(parts, np.split(rows, counts.cumsum()[:-1]), strict=True):
            part.append(piece)
    return _feed_the_poorest([np.concatenate(pieces) for pieces in parts], rng)


def _feed_the_poorest(parts: list[Rows], rng: np.random.Generator) -> list[Rows]:
    """Gives every client two samples at least, one at a time from whoever has most."""
    sizes = np.array([len(rows) for rows in parts])
    while sizes.min() < 2:
        rich, poor = int(sizes.argmax()), int(sizes.argmin())
        gift = rng.integers(sizes[rich])
        parts[poor] = np.append(parts[poor], parts[rich][gift])
        parts[rich] = np.delete(parts[rich], gift)
        sizes[rich] -= 1
        sizes[poor] += 1
    return parts


def _evenly(labels: Rows, config: PartitionConfig, rng: np.random.Generator) -> list[Rows]:
    """Each class is dealt round the table, starting where the class before it ended."""
    _enough_for_all(labels, config.clients)
    mixed = rng.permutation(len(labels))
    deck = mixed[np.argsort(labels[mixed], kind="stable")]
    return [deck[client :: config.clients] for client in range(config.clients)]


def _enough_for_all(labels: Rows, clients: int) -> None:
    if len(labels) < 2 * clients:
        _too_many(clients, len(labels) // 2, len(labels))


def _too_many(clients: int, most: int, samples: int) -> None:
    raise PartitionError(
        f"partition.clients = {clients} is more than {samples} samples can serve with this "
        f"partition; the largest number that works is {most}"
    )


def _at_least(least: int, counts: Rows) -> Rows:
    """Raises every count to `least`, at the expense of the largest."""
    counts = counts.copy()
    while counts.min() < least:
        counts[counts.argmax()] -= 1
        counts[counts.argmin()] += 1
    return counts


def _split(
    labels: Rows, rows: Rows, shares: tuple[float, float, float], rng: np.random.Generator
) -> Share:
    """Train, validation and test in proportion, all with the same classes where sizes allow."""
    rows = rng.permutation(rows)
    _, kind, sizes = np.unique(labels[rows], return_inverse=True, return_counts=True)
    _, val_share, test_share = shares

    def quota(share: float, spare: Rows) -> Rows:
        wanted = apportion(round(share * len(rows)), sizes)
        return np.minimum(np.maximum(wanted, min(1, math.ceil(share))), np.maximum(spare, 0))

    test = quota(test_share, sizes - 1)  # a class gives to test first, then to validation,
    val = quota(val_share, sizes - test - 1)  # and always keeps one sample to train on
    if not test.sum():
        test[sizes.argmax()] = 1  # every class has one sample: give up one of them
    pieces: tuple[list[Rows], list[Rows], list[Rows]] = ([], [], [])
    for index in range(len(sizes)):
        own = rows[kind == index]
        cuts = np.split(own, [test[index], test[index] + val[index]])
        for piece, cut in zip(pieces, (cuts[2], cuts[1], cuts[0]), strict=True):
            piece.append(cut)
    train_rows, val_rows, test_rows = (np.sort(np.concatenate(piece)) for piece in pieces)
    return Share(train_rows, val_rows, test_rows)
