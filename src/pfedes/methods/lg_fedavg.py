"""LG-FedAvg: private representations, a shared head.

Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global
Representations, 2020. With CNN-1..5 the last layer is the only one whose shape and input mean the
same everywhere.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from pfedes.core.aggregation import Averaging
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State
from pfedes.core.wire import WireSpec, required
from pfedes.methods._shared_head import SharedHead, fit_head, rows_of_head
from pfedes.methods.base import MethodConfig, Received, Upload, Wire, averaged
from pfedes.models.head import head_of


class LGFedAvgConfig(MethodConfig):
    """Hyper-parameters of LG-FedAvg."""

    name: Literal["lg_fedavg"] = "lg_fedavg"
    averaging: Averaging = Field("weighted", description="weighted (by samples) | uniform")


class LGFedAvg(SharedHead[LGFedAvgConfig]):
    """All layers train; only the head travels."""

    Config = LGFedAvgConfig
    needs = frozenset({"width"})

    @property
    def averages_parameters(self) -> bool:
        return True

    @property
    def additive(self) -> bool:
        return True

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        loss = fit_head(client, download, ctx)
        return Upload(loss, head_of(client.model).state_dict())

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        return State(averaged(uploads, ctx, self.config.averaging))

    def allowed(self, card: Card, ctx: Context) -> Wire:
        head = WireSpec((required(rows_of_head(ctx.classes, card)),))
        return Wire(down=head, up=head)
