"""FedProto: clients share the mean representation of each of their classes.

Tan et al., FedProto: Federated Prototype Learning across Heterogeneous Clients, 2022.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from pfedes.core.aggregation import Averaging, Voices
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Max, Payload, State, TensorSpec
from pfedes.core.samples import Batch
from pfedes.core.training import Learner, fit, label_loss
from pfedes.core.wire import Counts, Labels, WireSpec, bounded_rows, required
from pfedes.methods._class_means import (
    ClassMeans,
    LabelTable,
    MeansTaken,
    prototypes_of,
    weighted_mean,
)
from pfedes.methods.base import Method, MethodConfig, Problem, Received, Upload, Wire, check_widths
from pfedes.models.head import head_of, represent

Table = Literal["own", "full"]
Inference = Literal["head", "nearest_own", "nearest_known"]


class FedProtoConfig(MethodConfig):
    """Hyper-parameters of FedProto."""

    name: Literal["fedproto"] = "fedproto"
    lambda_: float = Field(
        1.0, ge=0, alias="lambda", description="lambda, weight of the distance to the prototypes"
    )
    statistics: MeansTaken = Field(
        "pass", description="prototypes taken in a pass after training | in the last_epoch"
    )
    averaging: Averaging = Field("weighted", description="weighted (by samples) | uniform")
    table: Table = Field(
        "own", description="prototypes sent down: of own classes | full (always with nearest_known)"
    )
    inference: Inference = Field(
        "head",
        description="predict with the model's head | the nearest prototype of own classes | "
        "of all known classes",
    )


class FedProto(Method[FedProtoConfig]):
    """Representations are drawn to the global prototype of their class; prototypes travel."""

    Config = FedProtoConfig
    needs = frozenset({"classes", "width"})

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        return check_widths(cards, "FedProto averages representations")

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        return State({"prototypes": torch.zeros(0, cards[0].width or 0)}, {"labels": []})

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        known = LabelTable(state, "prototypes", ctx.classes)
        labels = [label for label in sorted(self._sent(card, ctx)) if known.known[label]]
        rows, _ = known.lookup(torch.tensor(labels, dtype=torch.int64))
        return Payload({"prototypes": rows}, {"labels": labels})

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        prototypes = LabelTable(download, "prototypes", ctx.classes)
        running = ClassMeans(ctx.classes, head_of(client.model).in_features)

        def loss(batch: Batch) -> Tensor:
            rep, logits = represent(client.model, batch.x)
            if self.config.statistics == "last_epoch":
                running.see(batch.y, rep.detach())
            return prototype_loss(rep, logits, batch, prototypes, self.config.lambda_)

        value = fit(
            client,
            {"model": Learner(client.model, ctx.train.lr)},
            loss,
            epochs=ctx.train.epochs,
            ctx=ctx,
            epoch_begins=running.forget,
        )
        means = prototypes_of(client, ctx) if self.config.statistics == "pass" else running
        labels, rows = means.rows()
        # A balanced epoch may have seen a rare class more often than there are samples of it.
        held = torch.bincount(client.train.labels.cpu(), minlength=ctx.classes)
        counts = [int(min(means.counts[label], held[label])) for label in labels]
        return Upload(value, {"prototypes": rows}, {"labels": labels, "counts": counts})

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        """Averages each class over the clients that reported it; other classes keep theirs."""
        old = LabelTable(state, "prototypes", ctx.classes)
        table = dict(zip(old.labels, old.rows, strict=True))
        reports: dict[int, dict[str, Tensor]] = {}  # by class and client
        counts: dict[int, dict[str, int]] = {}
        for upload in uploads:
            seen = upload.payload.meta["counts"]
            assert isinstance(seen, list)
            own = LabelTable(upload.payload, "prototypes", ctx.classes)
            for label, row, count in zip(own.labels, own.rows, seen, strict=True):
                weight = int(count) if self.config.averaging == "weighted" else 1
                reports.setdefault(label, {})[upload.card.name] = row
                counts.setdefault(label, {})[upload.card.name] = weight
        voices = Voices(ctx.max_share)
        table |= {
            label: weighted_mean(list(rows.values()), voices.among(counts[label]))
            for label, rows in reports.items()
        }
        voices.log(ctx.round)
        labels = sorted(table)
        return State({"prototypes": torch.stack([table[y] for y in labels])}, {"labels": labels})

    def personal(self, client: Client, download: Payload | None, ctx: Context) -> nn.Module:
        if download is None or self.config.inference == "head":
            return client.model
        known = LabelTable(download, "prototypes", ctx.classes)
        own = set(client.train.labels.tolist())
        among = known.labels if self.config.inference == "nearest_known" else [
            label for label in known.labels if label in own
        ]  # fmt: skip
        if not among:
            return client.model  # before the first prototype there is nothing to be near to
        return NearestPrototype(client.model, known, among, ctx.classes)

    def evaluated_after_aggregation(self, ctx: Context) -> bool:
        return ctx.after_aggregation or self.config.inference != "head"

    def allowed(self, card: Card, ctx: Context) -> Wire:
        classes, width = card.classes or {}, card.width or 0
        own = frozenset(classes)
        held = tuple(classes[label] for label in sorted(own))
        sent = self._sent(card, ctx)
        down = required({"prototypes": TensorSpec((Max(len(sent)), width))})
        up = required({"prototypes": bounded_rows(len(own), width)})
        return Wire(
            down=WireSpec((down,), {"labels": Labels("prototypes", sent)}),
            up=WireSpec(
                (up,),
                {"labels": Labels("prototypes", own), "counts": Counts("prototypes", held)},
            ),
        )

    def _sent(self, card: Card, ctx: Context) -> frozenset[int]:
        """The classes whose prototypes a client may be sent."""
        if self.config.table == "full" or self.config.inference == "nearest_known":
            return frozenset(range(ctx.classes))
        return frozenset(card.classes or {})


def prototype_loss(
    rep: Tensor, logits: Tensor, batch: Batch, prototypes: LabelTable, weight: float
) -> Tensor:
    """CE + lambda * mean squared distance to the prototype of the label.

    A sample whose class has no prototype adds nothing; the divisor is the whole batch.
    """
    loss = label_loss(logits, batch)
    if not weight or not len(prototypes):
        return loss
    wanted, known = prototypes.lookup(batch.y)
    distance = (rep - wanted).square().mean(dim=1)
    return loss + weight * (distance * known).mean()


class NearestPrototype(nn.Module):
    """Classifies by the nearest prototype: the logit of a class is minus its distance."""

    def __init__(
        self, model: nn.Module, prototypes: LabelTable, among: Sequence[int], classes: int
    ) -> None:
        super().__init__()
        self.model = model
        self.labels = list(among)
        self.classes = classes
        self.prototypes: Tensor
        rows, _ = prototypes.lookup(torch.tensor(self.labels, dtype=torch.int64))
        self.register_buffer("prototypes", rows)  # part of its state, so that it can be exported

    def forward(self, x: Tensor) -> Tensor:
        rep, _ = represent(self.model, x)
        logits = rep.new_full((len(x), self.classes), -torch.inf)
        logits[:, self.labels] = -torch.cdist(rep, self.prototypes)
        return logits
