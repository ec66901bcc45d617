"""Averaging named tensors."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]


Averaging = Literal["weighted", "uniform"]


def weights_of(samples: Sequence[int], averaging: Averaging = "weighted") -> list[float]:
    """n_k / n, with n taken over the clients that answered; or the same for all.

    The paper's text sums n over all clients; weights would then add up to the participation rate
    and the extractor would shrink every round.
    """
    counts = samples if averaging == "weighted" else [1] * len(samples)
    weights = [count / sum(counts) for count in counts]
    assert abs(sum(weights) - 1) < 1e-6
    return weights


def mean(uploads: Sequence[Tensors], weights: Sequence[float]) -> dict[str, Tensor]:
    """The weighted mean, summed in double precision and in the order given."""
    first = uploads[0]
    result = {}
    for name, tensor in first.items():
        total = torch.zeros(tensor.shape, dtype=torch.float64)
        for upload, weight in zip(uploads, weights, strict=True):
            total += upload[name].double() * weight
        # Whole numbers (the step counts of batch normalisation) stay whole.
        result[name] = (total if tensor.is_floating_point() else total.round()).to(tensor.dtype)
    return result
