"""Means of vectors by class, as FD, FedProto and the methods that follow it send them."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from pfedes.core.client import Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload
from pfedes.core.training import survey
from pfedes.methods.base import Received
from pfedes.models.head import head_of, represent

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


def prototypes_of(client: Client, ctx: Context) -> ClassMeans:
    """The mean representation of each own class: one pass, without learning or augmentation."""
    means = ClassMeans(ctx.classes, head_of(client.model).in_features)
    survey(
        client,
        client.model,
        lambda batch: means.see(batch.y, represent(client.model, batch.x)[0]),
        batch_size=ctx.train.batch_size,
    )
    return means


def weighted_mean(rows: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
    """The mean of several clients' means, summed in double precision and in the order given."""
    total = torch.zeros(len(rows[0]), dtype=torch.float64)
    for row, count in zip(rows, counts, strict=True):
        total = total + row.double() * count
    return (total / sum(counts)).float()


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
        """The row of each label (any row if it has none), and whether it has one."""
        return self.rows[self._index[labels]], self.known[labels]


def in_order(uploads: Sequence[Received]) -> list[Received]:
    """Rows in the order of clients, so that random draws fall to the same rows."""
    return sorted(uploads, key=lambda upload: upload.card.name)


def rows_with_labels(uploads: Sequence[Received], name: str) -> tuple[Tensor, Tensor]:
    """All rows that clients sent, by client and then by class, and the class of each."""
    uploads = in_order(uploads)
    labels: list[int] = []
    for upload in uploads:
        own = upload.payload.meta["labels"]
        assert isinstance(own, list)
        labels += map(int, own)
    rows = torch.cat([upload.payload.tensors[name] for upload in uploads])
    return rows, torch.tensor(labels, dtype=torch.int64)
