"""LG-FedAvg: private representations, a shared head.

Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global
Representations, 2020. With CNN-1..5 the last layer is the only one whose shape and input mean the
same everywhere.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from torch import nn

from pfedes.aggregation import Averaging
from pfedes.client import Card, Client
from pfedes.methods.base import (
    Context,
    Method,
    MethodConfig,
    Problem,
    Received,
    Upload,
    Wire,
    averaged,
    check_widths,
)
from pfedes.models.head import head_of
from pfedes.payload import Payload, State, TensorSpec, WireSpec, required
from pfedes.training import fit_labels


class LGFedAvgConfig(MethodConfig):
    """Hyper-parameters of LG-FedAvg."""

    name: Literal["lg_fedavg"] = "lg_fedavg"
    averaging: Averaging = Field("weighted", description="weighted (by samples) | uniform")


class LGFedAvg(Method[LGFedAvgConfig]):
    """All layers train; only the head travels."""

    Config = LGFedAvgConfig
    needs = frozenset({"width"})

    @property
    def averages_parameters(self) -> bool:
        return True

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        return check_widths(cards, "LG-FedAvg shares the head")

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        with ctx.streams.ambient("init.head"):
            return State(nn.Linear(cards[0].width or 0, ctx.classes).state_dict())

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload(state.tensors)

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        head = head_of(client.model)
        head.load_state_dict(download.tensors)
        loss = fit_labels(client, ctx)
        return Upload(loss, head.state_dict())

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        return State(averaged(uploads, ctx, self.config.averaging))

    def personal(self, client: Client, download: Payload | None, ctx: Context) -> nn.Module:
        if download is not None:
            head_of(client.model).load_state_dict(download.tensors)
        return client.model

    def allowed(self, card: Card, ctx: Context) -> Wire:
        head = required(
            {
                "weight": TensorSpec((ctx.classes, card.width or 0)),
                "bias": TensorSpec((ctx.classes,)),
            }
        )
        return Wire(down=WireSpec((head,)), up=WireSpec((head,)))
