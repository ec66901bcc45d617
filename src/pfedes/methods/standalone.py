"""Standalone: every client learns alone. The baseline that sharing has to beat."""

from typing import Literal

from torch.nn import functional as F

from pfedes.client import Client
from pfedes.methods.base import Context, Method, MethodConfig, Upload
from pfedes.payload import Payload
from pfedes.training import Learner, fit


class StandaloneConfig(MethodConfig):
    """Standalone has no hyper-parameters of its own."""

    name: Literal["standalone"] = "standalone"


class Standalone(Method[StandaloneConfig]):
    """Only selected clients train, so that the local budget equals that of every other method."""

    Config = StandaloneConfig

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        loss = fit(
            client,
            {"model": Learner(client.model, ctx.train.lr)},
            lambda batch: F.cross_entropy(client.model(batch.x), batch.y),
            epochs=ctx.train.epochs,
            ctx=ctx,
        )
        return Upload(loss)
