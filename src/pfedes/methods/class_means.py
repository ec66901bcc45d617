"""Means of vectors by class, as FD and FedProto send them."""

from typing import Literal

import torch
from torch import Tensor

from pfedes.payload import Payload

MeansTaken = Literal["last_epoch", "pass"]


class ClassMeans:
    """Sums and counts of the vectors seen for each class; kept on the CPU, which has doubles."""

    def __init__(self, classes: int, width: int) -> None:
        self.sums = torch.zeros(classes, width, dtype=torch.float64)
        self.counts = torch.zeros(classes, dtype=torch.int64)

    def forget(self) -> None:
        self.sums.zero_()
        self.counts.zero_()

    def see(self, labels: Tensor, vectors: Tensor) -> None:
        labels = labels.cpu()
        self.sums.index_add_(0, labels, vectors.cpu().double())
        self.counts.index_add_(0, labels, torch.ones_like(labels))

    def rows(self) -> tuple[list[int], Tensor]:
        """The ids of the classes seen, ascending, and their means."""
        seen = self.counts.nonzero().flatten()
        return seen.tolist(), (self.sums[seen] / self.counts[seen, None]).float()


class LabelTable:
    """Rows by class id, as they travel: a tensor with a list of ids beside it.

    `rows[index[y]]` is the row of class y, and `known[y]` says whether there is one.
    """

    def __init__(self, payload: Payload, name: str, classes: int) -> None:
        self.rows = payload.tensors[name]
        labels = payload.meta["labels"]
        assert isinstance(labels, list)
        self.labels = [int(label) for label in labels]
        device = self.rows.device
        self.known = torch.zeros(classes, dtype=torch.bool, device=device)
        self.known[self.labels] = True
        self._index = torch.zeros(classes, dtype=torch.int64, device=device)
        self._index[self.labels] = torch.arange(len(self.labels), device=device)

    def __len__(self) -> int:
        return len(self.labels)

    def lookup(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """For each label its row (any row where there is none), and whether there is one."""
        return self.rows[self._index[labels]], self.known[labels]
