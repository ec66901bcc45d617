"""Balances classes in local training: by weights in the loss, or by how often samples are drawn.

Only the classes that a client has are balanced.
"""

import torch
from torch import Tensor


def balanced_weights(labels: Tensor, classes: int) -> Tensor:
    """A weight for each class, so that all present classes count equally: n / (K n_c).

    That is scikit-learn's "balanced". Classes without samples have weight 1, which nothing uses.
    """
    counts = torch.bincount(labels, minlength=classes)
    present = counts > 0
    weights = len(labels) / (present.sum() * counts.clamp_min(1))
    return torch.where(present, weights, 1.0)


def balanced_rows(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Rows of an epoch of `count` samples in random order, equally many of each class.

    No sample of a class is seen more than once oftener than another one. Where `count` does not
    divide, chance decides which classes have one more.
    """
    present = torch.unique(labels.cpu())
    present = present[torch.randperm(len(present), generator=generator)]
    chosen = []
    for number, label in enumerate(present.tolist()):
        wanted = count // len(present) + (number < count % len(present))
        own = (labels.cpu() == label).nonzero().flatten()
        turns = -(-wanted // len(own))
        order = [own[torch.randperm(len(own), generator=generator)] for _ in range(turns)]
        if order:
            chosen.append(torch.cat(order)[:wanted])
    rows = torch.cat(chosen)
    return rows[torch.randperm(len(rows), generator=generator)]
