"""A method whose server trains: clients send class means, the server fits one head on them.

    PYTHONPATH=examples pfedes run --method trained_head:TrainedHead

The rows that come back are small: one mean representation for each class that a client holds. What
the server computes on them is counted in `ctx.meter`, and appears as `flops_server` in rows,
summaries and tables.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from pfedes.methods import (
    Batch,
    Card,
    Client,
    Context,
    Labels,
    Method,
    MethodConfig,
    Payload,
    Received,
    State,
    TensorSpec,
    Upload,
    Wire,
    WireSpec,
    fit_labels,
    head_of,
    represent,
    required,
    survey,
    train_rows,
)


class TrainedHeadConfig(MethodConfig):
    """How the server trains. Keys that begin with server_ cost participants nothing."""

    name: str = "trained_head:TrainedHead"
    server_lr: float = Field(0.1, gt=0, description="learning rate of the server")
    server_epochs: int = Field(20, ge=1, description="epochs of the server in a round")


class TrainedHead(Method[TrainedHeadConfig]):
    """Down travels a linear head, up a row for each class of the client."""

    Config = TrainedHeadConfig
    display_name = "TrainedHead"
    needs = frozenset({"labels", "width"})  # class ids without counts; the representation's width

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        with ctx.streams.ambient("init.head"):  # the same in every process
            return State(nn.Linear(cards[0].width or 0, ctx.classes).state_dict())

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload(state.tensors)

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        head_of(client.model).load_state_dict(download.tensors)
        loss = fit_labels(client, ctx)
        rows: list[torch.Tensor] = []
        classes: list[torch.Tensor] = []

        def see(batch: Batch) -> None:
            rows.append(represent(client.model, batch.x)[0])
            classes.append(batch.y)

        survey(client, client.model, see, batch_size=ctx.train.batch_size)  # a counted pass
        seen, labels = torch.cat(rows), torch.cat(classes)
        held = labels.unique()  # in ascending order
        means = torch.stack([seen[labels == label].mean(dim=0) for label in held])
        return Upload(loss, {"means": means}, {"labels": held.tolist()})

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        means = torch.cat([upload.payload.tensors["means"] for upload in uploads])
        labels = [label for upload in uploads for label in labels_of(upload)]
        head = nn.Linear(means.shape[1], ctx.classes)
        head.load_state_dict(state.tensors)
        train_rows(
            head,
            means,
            torch.tensor(labels),
            lambda rows, targets: F.cross_entropy(head(rows), targets),
            lr=self.config.server_lr,
            epochs=self.config.server_epochs,
            batch=0,  # all rows in one step
            ctx=ctx,  # whose stream shuffles, and whose meter counts
        )
        return State(head.state_dict())

    def allowed(self, card: Card, ctx: Context) -> Wire:
        """A client's rows are as many as its classes, and labelled with just these."""
        width, own = card.width or 0, frozenset(card.classes or {})
        head = {"weight": TensorSpec((ctx.classes, width)), "bias": TensorSpec((ctx.classes,))}
        means = {"means": TensorSpec((len(own), width))}
        return Wire(
            down=WireSpec((required(head),)),
            up=WireSpec((required(means),), {"labels": Labels("means", own)}),
        )


def labels_of(upload: Received) -> list[int]:
    """What the allow-list has let through is a list of class ids."""
    labels = upload.payload.meta["labels"]
    assert isinstance(labels, list)
    return [int(label) for label in labels]
