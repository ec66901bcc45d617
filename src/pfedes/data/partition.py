"""Divides a data set among clients, and each client's share into train, validation and test.

The partition by classes is that of pFedHN, which the paper follows, with its faults corrected: no
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


Shares = tuple[float, float, float]


def _is_split(split: Shares | Literal["official"]) -> Shares | Literal["official"]:
    if split == "official":
        return split
    train, _, test = split
    if min(split) < 0 or train <= 0 or test <= 0 or abs(sum(split) - 1) > 1e-9:
        raise ValueError("must be three shares that add up to 1, with some for train and test")
    return split


class PartitionConfig(Section):
    """How samples are divided among clients."""

    kind: Literal["classes", "dirichlet", "iid", "natural"] = Field(
        "classes", description="classes (the paper's) | dirichlet | iid | natural (by table.site)"
    )
    clients: int = Field(10, ge=1, description="N, the number of clients")
    classes_per_client: int = Field(
        2, ge=1, description="classes only: number of classes per client"
    )
    alpha: float = Field(
        0.5, gt=0, description="dirichlet only: the smaller, the more clients differ"
    )
    split: Annotated[Shares | Literal["official"], AfterValidator(_is_split)] = Field(
        (0.8, 0.1, 0.1),
        description="shares of train, validation, test; or official (own test set, rest 4:1)",
    )
    rule: Literal["even", "floor", "floor_plus_one"] = Field(
        "even", description="classes only: even | the two faulty legacy rules, to replicate"
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


def partition(
    labels: Rows,
    config: PartitionConfig,
    rng: np.random.Generator,
    official_test: NDArray[np.bool_] | None = None,
) -> list[Share]:
    """One share per client: disjoint, and never without training or test samples.

    `official_test` marks the samples of the source's own test set, for `split = "official"`.
    """
    if config.kind == "natural":
        raise PartitionError("partition.kind = 'natural' needs a table with a site column")
    plan = {"classes": _plan_classes, "dirichlet": _plan_dirichlet, "iid": _plan_evenly}[
        config.kind
    ]
    if config.split != "official":
        everything = np.arange(len(labels))
        holdings = plan([labels], config, rng)
        owned = _feed_the_poorest(_deal(labels, everything, holdings, config, rng), rng)
        return [_split(labels, rows, config.split, rng) for rows in owned]
    if official_test is None or not official_test.any() or official_test.all():
        raise PartitionError(
            "partition.split = 'official', but the data has no test set of its own"
        )
    train, val = _four_to_one(labels, np.flatnonzero(~official_test), rng)
    test = np.flatnonzero(official_test)
    holdings = plan([labels[train], labels[test]], config, rng)
    dealt = [_deal(labels, rows, holdings, config, rng) for rows in (train, val, test)]
    shares = [Share(*parts) for parts in zip(*dealt, strict=True)]
    for number, share in enumerate(shares):
        if not len(share.train) or not len(share.test):
            raise PartitionError(f"client {number} is left without training or test samples")
    return shares


def apportion(total: int, weights: Sequence[float] | NDArray[np.generic]) -> Rows:
    """Whole numbers in proportion to weights that add up to `total` (largest remainder)."""
    exact = np.asarray(weights, np.float64)
    exact = exact / exact.sum() * total
    counts: Rows = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: total - counts.sum()]] += 1
    return counts


Holdings = dict[int, list[tuple[int, float]]]
"""For each class the clients that hold it, and how much of it relative to each other."""


def _deal(
    labels: Rows,
    rows: Rows,
    holdings: Holdings,
    config: PartitionConfig,
    rng: np.random.Generator,
) -> list[Rows]:
    """Cuts each class among its holders; the same holdings deal any number of splits alike."""
    parts: list[list[Rows]] = [[np.empty(0, np.int64)] for _ in range(config.clients)]
    for label, held in holdings.items():
        own = rng.permutation(rows[labels[rows] == label])
        shares = np.array([share for _, share in held])
        if config.kind != "classes":
            counts = apportion(len(own), shares)
        elif config.rule == "even":
            counts = _at_least(_least(config), apportion(len(own), shares))
        else:
            counts = np.floor(shares * len(own)).astype(np.int64)  # the rest stays unused
        for (client, _), piece in zip(held, np.split(own, counts.cumsum())[:-1], strict=True):
            parts[client].append(piece)
    return [np.sort(np.concatenate(pieces)) for pieces in parts]


def _plan_classes(
    pools: Sequence[Rows], config: PartitionConfig, rng: np.random.Generator
) -> Holdings:
    """Each client holds c distinct classes, of each a share drawn from uniform(0.4, 0.6)."""
    classes, clients, per_client = np.unique(pools[0]), config.clients, config.classes_per_client
    if per_client > len(classes):
        raise PartitionError(
            f"partition.classes_per_client = {per_client}, but the data has {len(classes)} classes"
        )
    if config.rule == "even":
        smallest = min(int((pool == label).sum()) for pool in pools for label in classes)
        holders_at_most = smallest // _least(config)
        if math.ceil(per_client * clients / len(classes)) > holders_at_most:
            most = len(classes) * holders_at_most // per_client
            _too_many(clients, most, sum(map(len, pools)))
        holders = _assign_evenly(len(classes), per_client, clients, rng)
    else:
        holders = _assign_as_pfedhn(len(classes), config, rng)
    holdings: Holdings = {}
    for label, clients_of in zip(classes.tolist(), holders, strict=True):
        if not clients_of:
            log.warning(
                "no client holds class %s: %d clients x %d classes cover %d of %d classes",
                *(label, clients, per_client, sum(map(bool, holders)), len(classes)),
            )
            continue
        places = len(clients_of)
        if config.rule == "floor_plus_one":
            places = per_client * clients // len(classes) + 1  # one share may stay unused
        shares = rng.uniform(0.4, 0.6, places)
        shares /= shares.sum()
        holdings[label] = list(zip(clients_of, shares.tolist(), strict=False))
    return holdings


def _assign_evenly(
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


def _assign_as_pfedhn(
    classes: int, config: PartitionConfig, rng: np.random.Generator
) -> list[list[int]]:
    """The rule that public code has, faults and all: a client may draw the same class twice."""
    extra = config.rule == "floor_plus_one"
    places = np.full(classes, config.classes_per_client * config.clients // classes + extra)
    holders: list[list[int]] = [[] for _ in range(classes)]
    for client in range(config.clients):
        for _ in range(config.classes_per_client):
            label = int(rng.choice(np.flatnonzero(places == places.max())))
            if places[label] < 1:
                raise PartitionError(
                    f"partition.rule = {config.rule!r} runs out of shares at client {client}: make "
                    f"clients x classes_per_client a multiple of {classes}, or use 'even'"
                )
            places[label] -= 1
            holders[label].append(client)
    return holders


def _plan_dirichlet(
    pools: Sequence[Rows], config: PartitionConfig, rng: np.random.Generator
) -> Holdings:
    """Each class is spread over the clients by proportions drawn from Dirichlet(alpha)."""
    _enough_for_all(pools, config.clients)
    holdings: Holdings = {}
    for label in np.unique(pools[0]).tolist():
        shares = rng.dirichlet(np.full(config.clients, config.alpha))
        if not shares.sum() > 0:
            # The smallest alphas underflow to all zeros; then one client takes the class.
            shares = np.eye(config.clients)[rng.integers(config.clients)]
        holdings[label] = list(enumerate(shares.tolist()))
    return holdings


def _plan_evenly(
    pools: Sequence[Rows], config: PartitionConfig, rng: np.random.Generator
) -> Holdings:
    """Each client holds the same share of each class; the rest is distributed at random."""
    _enough_for_all(pools, config.clients)
    return {
        label: [(int(client), 1.0) for client in rng.permutation(config.clients)]
        for label in np.unique(pools[0]).tolist()
    }


def _feed_the_poorest(parts: list[Rows], rng: np.random.Generator) -> list[Rows]:
    """Gives every client at least two samples, one at a time from the client with most."""
    sizes = np.array([len(rows) for rows in parts])
    while sizes.min() < 2:
        rich, poor = int(sizes.argmax()), int(sizes.argmin())
        gift = rng.integers(sizes[rich])
        parts[poor] = np.append(parts[poor], parts[rich][gift])
        parts[rich] = np.delete(parts[rich], gift)
        sizes[rich] -= 1
        sizes[poor] += 1
    return parts


def _four_to_one(labels: Rows, rows: Rows, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Training and validation rows, 4:1 in every class."""
    train, val = [], []
    for label in np.unique(labels[rows]):
        own = rng.permutation(rows[labels[rows] == label])
        cut = round(len(own) / 5)
        val.append(own[:cut])
        train.append(own[cut:])
    return np.concatenate(train), np.concatenate(val)


def _least(config: PartitionConfig) -> int:
    """How many samples of a class its holder needs to have something to train and to test on."""
    return 2 if config.classes_per_client == 1 and config.split != "official" else 1


def _enough_for_all(pools: Sequence[Rows], clients: int) -> None:
    most = len(pools[0]) // 2 if len(pools) == 1 else min(map(len, pools))
    if clients > most:
        _too_many(clients, most, sum(map(len, pools)))


def _too_many(clients: int, most: int, samples: int) -> None:
    raise PartitionError(
        f"partition.clients = {clients} is more than {samples} samples can serve with this "
        f"partition; the largest number that works is {most}"
    )


def _at_least(least: int, counts: Rows) -> Rows:
    """Raises every count to `least`, at the expense of the largest."""
    counts = counts.copy()
    while len(counts) and counts.min() < least <= counts.max() - 1:
        counts[counts.argmax()] -= 1
        counts[counts.argmin()] += 1
    return counts


def _split(labels: Rows, rows: Rows, shares: Shares, rng: np.random.Generator) -> Share:
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
