"""FedSSA: clients share the head row by row, each only the rows of its own classes.

Yi et al., FedSSA: Semantic Similarity-based Aggregation for Efficient Model-Heterogeneous
Personalized Federated Learning, 2024.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from pfedes.core.aggregation import Averaging, Voices, mean, weights_of
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State
from pfedes.core.training import fit_labels
from pfedes.core.wire import Labels, WireSpec, bounded_rows, required
from pfedes.methods._shared_head import SharedHead
from pfedes.methods.base import MethodConfig, Need, Received, Upload, Wire
from pfedes.models.head import head_of, head_parameters


class FedSSAConfig(MethodConfig):
    """Hyper-parameters of FedSSA."""

    name: Literal["fedssa"] = "fedssa"
    mu: float = Field(
        0.5, ge=0, le=1, description="mu_0, weight of a client's former rows at first"
    )
    stable_rounds: int = Field(
        2, ge=0, description="T, rounds after which former rows no longer count"
    )
    fusion: Literal["sum", "convex"] = Field(
        "sum", description="sum (global + mu_t local, the authors') | convex (1 - mu_t and mu_t)"
    )
    averaging: Averaging = Field(
        "uniform", description="uniform | weighted (by samples of a class)"
    )


class FedSSA(SharedHead[FedSSAConfig]):
    """All layers train; the rows of own classes travel, those of others stay private."""

    Config = FedSSAConfig

    @property
    def needs(self) -> frozenset[Need]:
        needs: frozenset[Need] = frozenset({"labels", "width"})
        return needs | {"classes"} if self.config.averaging == "weighted" else needs

    def prepare(self, client: Client, ctx: Context) -> None:
        super().prepare(client, ctx)
        client.kept["rounds"] = torch.tensor(0, device=client.device)  # it took part in

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        labels = sorted(card.classes or {})
        return Payload({n: rows[labels] for n, rows in state.tensors.items()}, {"labels": labels})

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        head = head_of(client.model)
        labels = download.meta["labels"]
        assert isinstance(labels, list)
        history = mu_at(ctx.round, self.config) if int(client.kept["rounds"]) else 0.0
        with torch.no_grad():
            for name, rows in head.state_dict().items():
                rows[labels] = self._fused(download.tensors[name], rows[labels], history)
        loss = fit_labels(client, ctx, received=head_parameters(client.model))
        client.kept["rounds"] = client.kept["rounds"] + 1
        return Upload(
            loss, {n: t[labels] for n, t in head.state_dict().items()}, {"labels": labels}
        )

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        """Averages the row of each class over the clients that sent it; other rows stay."""
        reports: dict[int, dict[str, dict[str, Tensor]]] = {}  # by class and client
        counts: dict[int, dict[str, int]] = {}
        for upload in uploads:
            labels = upload.payload.meta["labels"]
            assert isinstance(labels, list)
            for place, label in enumerate(map(int, labels)):
                row = {name: rows[place] for name, rows in upload.payload.tensors.items()}
                held = (upload.card.classes or {})[label]
                reports.setdefault(label, {})[upload.card.name] = row
                counts.setdefault(label, {})[upload.card.name] = held
        new = {name: tensor.clone() for name, tensor in state.tensors.items()}
        voices = Voices(ctx.max_share)
        for label, rows in reports.items():
            weights = weights_of([1] * len(rows))
            if self.config.averaging == "weighted":
                weights = weights_of(voices.among(counts[label]))
            for name, mean_row in mean(list(rows.values()), weights).items():
                new[name][label] = mean_row
        voices.log(ctx.round)
        return State(new)

    def personal(self, client: Client, download: Payload | None, ctx: Context) -> nn.Module:
        return client.model

    def allowed(self, card: Card, ctx: Context) -> Wire:
        own = frozenset(card.classes or {})
        rows = required(
            {"weight": bounded_rows(len(own), card.width or 0), "bias": bounded_rows(len(own))}
        )
        spec = WireSpec((rows,), {"labels": Labels("weight", own)})
        return Wire(down=spec, up=spec)

    def _fused(self, received: Tensor, former: Tensor, history: float) -> Tensor:
        """The rows at the start of a round: the global ones, and a share of the client's own."""
        if not history:
            return received
        weight = 1 - history if self.config.fusion == "convex" else 1.0
        return weight * received + history * former


def mu_at(round: int, config: FedSSAConfig) -> float:
    """mu_t = mu_0 cos(pi t / (2 T)) with t counted from 0; 0 after T rounds, or if T is 0."""
    t, stable = round - 1, config.stable_rounds
    if not stable or t > stable:
        return 0.0
    return config.mu * math.cos(math.pi * t / (2 * stable))
