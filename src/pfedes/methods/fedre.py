"""FedRE: FedGH with one vector per client, its class means mixed by random weights.

FedRE: entangled representations for model-heterogeneous federated learning, 2026. The variant is
the one that the authors' code has: weights are drawn per class ("RAP"), again in every round.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State, TensorSpec
from pfedes.core.wire import Labels, WireSpec, bounded_rows, required
from pfedes.methods._class_means import in_order, prototypes_of
from pfedes.methods._shared_head import (
    SharedHead,
    TrainedHeadConfig,
    fit_head,
    rows_of_head,
    trained_head,
)
from pfedes.methods.base import Received, Upload, Wire


class FedREConfig(TrainedHeadConfig):
    """Hyper-parameters of FedRE."""

    name: Literal["fedre"] = "fedre"
    server_batch: int = Field(32, ge=0, description="clients per step of the server; 0 = all")


class FedRE(SharedHead[FedREConfig]):
    """Entangled representations travel, with the weights that entangled them as soft labels."""

    Config = FedREConfig
    needs = frozenset({"labels", "width"})

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        loss = fit_head(client, download, ctx)
        labels, prototypes = prototypes_of(client, ctx).rows()
        random = ctx.streams.torch("entangle", round=ctx.round, client=client.name)
        encoding = shares_of(torch.rand(len(labels), generator=random))
        entangled = {"representation": encoding @ prototypes, "encoding": encoding}
        return Upload(loss, entangled, {"labels": labels})

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        """Trains the head to predict the shares of the classes in each mixture."""
        uploads = in_order(uploads)
        representations = torch.stack([u.payload.tensors["representation"] for u in uploads])
        shares = torch.zeros(len(uploads), ctx.classes)
        for row, upload in zip(shares, uploads, strict=True):
            row[upload.payload.meta["labels"]] = upload.payload.tensors["encoding"]
        return trained_head(state, representations, shares, soft_loss, self.config, ctx)

    def allowed(self, card: Card, ctx: Context) -> Wire:
        own = frozenset(card.classes or {})
        up = required(
            {
                "representation": bounded_rows(card.width or 0),
                "encoding": TensorSpec((len(own),), least=0, most=1),
            }
        )
        return Wire(
            down=WireSpec((required(rows_of_head(ctx.classes, card)),)),
            up=WireSpec((up,), {"labels": Labels("encoding", own)}),
        )


def shares_of(numbers: Tensor) -> Tensor:
    """Numbers as shares of their sum, equal ones if they are all zero."""
    total = numbers.sum()
    return numbers / total if total else torch.full_like(numbers, 1 / len(numbers))


def soft_loss(logits: Tensor, shares: Tensor) -> Tensor:
    """Cross entropy with soft labels, summed over the batch: the step grows with the clients."""
    return -(shares * F.log_softmax(logits, dim=1)).sum()
