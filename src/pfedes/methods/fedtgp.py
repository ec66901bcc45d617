"""FedTGP: FedProto with prototypes that the server trains to lie far from each other.

Zhang et al., FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive Learning
for Data and Model Heterogeneity in Federated Learning, 2024.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State, under, within
from pfedes.core.training import train_rows
from pfedes.core.wire import WireSpec
from pfedes.methods._class_means import LabelTable, rows_with_labels
from pfedes.methods.base import Method, MethodConfig, Problem, Received, Upload, Wire, check_widths
from pfedes.methods.fedproto import FedProto, Inference, Table

TGP = "tgp/"


class FedTGPConfig(MethodConfig):
    """Hyper-parameters of FedTGP."""

    name: Literal["fedtgp"] = "fedtgp"
    lambda_: float = Field(
        10.0, ge=0, alias="lambda", description="lambda, weight of the distance to the prototypes"
    )
    server_epochs: int = Field(100, ge=1, description="S, epochs of the prototypes in a round")
    server_lr: float = Field(0.01, gt=0, description="eta_S, learning rate of the prototypes")
    server_batch: int = Field(10, ge=0, description="class means per step of the server; 0 = all")
    margin_max: float = Field(100.0, ge=0, description="tau, the largest margin")
    margin: Literal["nearest", "farthest"] = Field(
        "nearest", description="by classes nearest to each other (the authors') | farthest (eq. 9)"
    )
    table: Table = Field(
        "own", description="prototypes sent down: of own classes | full (always with nearest_known)"
    )
    inference: Inference = Field(
        "head",
        description="predict with the model's head | the nearest prototype of own classes | "
        "of all known classes",
    )


class FedTGP(Method[FedTGPConfig]):
    """The client's side is FedProto's; the server trains on every client's prototypes."""

    Config = FedTGPConfig
    needs = frozenset({"labels", "width"})

    def __init__(self, config: FedTGPConfig | None = None, **hyper_parameters: Any) -> None:
        super().__init__(config, **hyper_parameters)
        weight, table, inference = self.config.lambda_, self.config.table, self.config.inference
        self.fedproto = FedProto(lambda_=weight, table=table, inference=inference)

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        return check_widths(cards, "FedTGP compares representations")

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        first = self.fedproto.start(cards, ctx)
        tgp = _initial(cards[0].width or 0, ctx).state_dict()
        return State({**under(TGP, tgp), **first.tensors}, first.meta)

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return self.fedproto.download(state, card, ctx)

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        upload = self.fedproto.client_round(client, download, ctx)
        return Upload(upload.loss, upload.tensors, {"labels": upload.meta["labels"]})

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        """Trains prototypes towards the reported means of their class, away from other classes."""
        rows, labels = rows_with_labels(uploads, "prototypes")
        tgp = _initial(rows.shape[1], ctx)
        tgp.load_state_dict(within(TGP, state.tensors))
        delta = margin_between(rows, labels, self.config)
        train_rows(
            tgp,
            rows,
            labels,
            lambda reported, classes: contrastive_loss(reported, classes, tgp(), delta),
            lr=self.config.server_lr,
            epochs=self.config.server_epochs,
            batch=self.config.server_batch,
            ctx=ctx,
        )
        known = sorted({*LabelTable(state, "prototypes", ctx.classes).labels, *labels.tolist()})
        with torch.no_grad():
            prototypes = tgp()[known]
        trained = under(TGP, tgp.state_dict())
        return State({**trained, "prototypes": prototypes}, {"labels": known})

    def personal(self, client: Client, download: Payload | None, ctx: Context) -> nn.Module:
        return self.fedproto.personal(client, download, ctx)

    def evaluated_after_aggregation(self, ctx: Context) -> bool:
        return self.fedproto.evaluated_after_aggregation(ctx)

    def allowed(self, card: Card, ctx: Context) -> Wire:
        """FedProto's lists, without the counts."""
        wire = self.fedproto.allowed(card, ctx)
        return Wire(wire.down, WireSpec(wire.up.groups, {"labels": wire.up.meta["labels"]}))


class TrainablePrototypes(nn.Module):
    """g_l = out(ReLU(hidden(embedding_l))), of all classes at once."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, width)
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self) -> Tensor:
        prototypes: Tensor = self.out(F.relu(self.hidden(self.embedding.weight)))
        return prototypes


def _initial(width: int, ctx: Context) -> TrainablePrototypes:
    with ctx.streams.ambient("init.tgp"):
        return TrainablePrototypes(ctx.classes, width)


def margin_between(rows: Tensor, labels: Tensor, config: FedTGPConfig) -> float:
    """delta, eq. 9, of this round's class means; 0 where there is but one class."""
    centres = torch.stack([rows[labels == label].mean(dim=0) for label in labels.unique()])
    if len(centres) < 2:
        return 0.0
    distances = (centres[:, None] - centres).norm(dim=2)
    if config.margin == "nearest":
        distances = distances.fill_diagonal_(torch.inf).min(dim=1).values
    return min(float(distances.max()), config.margin_max)


def contrastive_loss(rows: Tensor, labels: Tensor, prototypes: Tensor, delta: float) -> Tensor:
    """Eq. 10, as a mean: the own prototype has to be nearer than any other, by delta."""
    distances = distances_between(rows, prototypes)
    wanted = F.one_hot(labels, len(prototypes))
    return F.cross_entropy(-(distances + delta * wanted), labels)


def distances_between(rows: Tensor, others: Tensor) -> Tensor:
    """L2, by a matrix product, whose cost is counted.

    Rounding may make a square negative, and at 0 the root has no gradient: hence the floor.
    """
    lengths = rows.square().sum(dim=1, keepdim=True) + others.square().sum(dim=1)
    return (lengths - 2 * rows @ others.T).clamp_min(1e-12).sqrt()
