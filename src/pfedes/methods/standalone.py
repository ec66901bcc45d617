"""Standalone: every client learns alone. The baseline that sharing has to beat."""

from typing import Literal

from pfedes.core.client import Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload
from pfedes.core.training import fit_labels
from pfedes.methods.base import Method, MethodConfig, Upload


class StandaloneConfig(MethodConfig):
    """Standalone has no hyper-parameters of its own."""

    name: Literal["standalone"] = "standalone"


class Standalone(Method[StandaloneConfig]):
    """Only selected clients train, so that the local budget equals that of every other method."""

    Config = StandaloneConfig

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        return Upload(fit_labels(client, ctx))
