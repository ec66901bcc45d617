"""FedGH: clients send class means; the server trains one head on them, for everybody.

Yi et al., FedGH: Heterogeneous Federated Learning with Generalized Global Header, 2023.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from torch.nn import functional as F

from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State
from pfedes.core.wire import Labels, WireSpec, bounded_rows, required
from pfedes.methods._class_means import prototypes_of, rows_with_labels
from pfedes.methods._shared_head import (
    SharedHead,
    TrainedHeadConfig,
    fit_head,
    rows_of_head,
    trained_head,
)
from pfedes.methods.base import Received, Upload, Wire


class FedGHConfig(TrainedHeadConfig):
    """Hyper-parameters of FedGH."""

    name: Literal["fedgh"] = "fedgh"
    server_batch: int = Field(10, ge=0, description="class means per step of the server; 0 = all")


class FedGH(SharedHead[FedGHConfig]):
    """A round starts from the client's own layers and the global head; all of them train."""

    Config = FedGHConfig
    needs = frozenset({"labels", "width"})

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        loss = fit_head(client, download, ctx)
        labels, prototypes = prototypes_of(client, ctx).rows()
        return Upload(loss, {"prototypes": prototypes}, {"labels": labels})

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        """Trains the head on the class means of all clients; every mean counts once."""
        prototypes, labels = rows_with_labels(uploads, "prototypes")
        return trained_head(state, prototypes, labels, F.cross_entropy, self.config, ctx)

    def allowed(self, card: Card, ctx: Context) -> Wire:
        own = frozenset(card.classes or {})
        up = required({"prototypes": bounded_rows(len(own), card.width or 0)})
        return Wire(
            down=WireSpec((required(rows_of_head(ctx.classes, card)),)),
            up=WireSpec((up,), {"labels": Labels("prototypes", own)}),
        )
