"""Counts which classes a model predicts for its samples, and how well it ranks them."""

from collections.abc import Iterable

import torch
from torch import Tensor

from pfedes.core.measures import Tally


def tally_of(labels: Tensor, called: Tensor, logits: Tensor) -> Tally:
    """The tally of a model's answers: one label, one called class, one row of logits each."""
    classes = logits.shape[1]
    pairs, counts = torch.unique(labels * classes + called, return_counts=True)
    found = zip(pairs.tolist(), counts.tolist(), strict=True)
    return Tally(
        tuple((*divmod(pair, classes), count) for pair, count in found),
        tuple(_areas(labels, logits.double().softmax(dim=1))),
    )


def _areas(labels: Tensor, chances: Tensor) -> Iterable[tuple[int, float]]:
    if not bool(torch.isfinite(chances).all()):
        return
    for label in torch.unique(labels).tolist():
        positive = labels == label
        own, rest = chances[positive, label], chances[~positive, label].sort().values
        if not len(rest):
            continue
        # The pairs that are ranked rightly; a tie is half a pair.
        below = torch.searchsorted(rest, own, right=False).sum()
        up_to = torch.searchsorted(rest, own, right=True).sum()
        yield label, int(below + up_to) / (2 * len(own) * len(rest))
