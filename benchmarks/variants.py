"""Two methods as public code runs them, to see what its slips do to published numbers."""

from collections.abc import Sequence

from pfedes.core.client import Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State
from pfedes.methods.base import Received, Upload
from pfedes.methods.fedgh import FedGH, FedGHConfig
from pfedes.methods.fedmrl import PROJECTOR, FedMRL, FedMRLConfig


class FrozenHeadConfig(FedGHConfig):
    """Hyper-parameters of FedGH, for another class."""

    name: str = "variants:FrozenHead"  # type: ignore[assignment]  # FedGH's own is one literal


class FrozenHead(FedGH):
    """FedGH whose server never trains the head, so that its random start is everybody's."""

    Config = FrozenHeadConfig

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        return state


class UnstoredProjectorConfig(FedMRLConfig):
    """Hyper-parameters of FedMRL, for another class."""

    name: str = "variants:UnstoredProjector"  # type: ignore[assignment]  # as above


class UnstoredProjector(FedMRL):
    """FedMRL whose trained projector is lost after each round: the initial one is used again."""

    Config = UnstoredProjectorConfig

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        first = {name: t.clone() for name, t in client.kept.items() if name.startswith(PROJECTOR)}
        upload = super().client_round(client, download, ctx)
        client.kept |= first
        return upload
