"""Standalone: every client learns alone. The baseline that sharing has to beat."""

from typing import Literal

from pfedes.client import Client
from pfedes.methods.base import Context, Method, MethodConfig, Upload
from pfedes.payload import Payload
from pfedes.training import fit_labels


class StandaloneConfig(MethodConfig):
    """Standalone has no hyper-parameters of its own."""

    name: Literal["standalone"] = "standalone"


class Standalone(Method[StandaloneConfig]):
    """Only selected clients train, so that the local budget equals that of every other method."""

    Config = StandaloneConfig

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        return Upload(fit_labels(client, ctx))
