"""A model that predicts from an input twice: raw and enhanced."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BothViews(nn.Module):
    """Predicts by the mean of softmax F(x) and softmax F(G(x)).

    The logits are the logarithms of that mean: their softmax is the mean again.
    """

    def __init__(self, model: nn.Module, extractor: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.extractor = extractor

    def forward(self, x: Tensor) -> Tensor:
        views = [F.log_softmax(self.model(view), dim=1) for view in (x, self.extractor(x))]
        return torch.logsumexp(torch.stack(views), dim=0) - math.log(len(views))
