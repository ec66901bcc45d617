"""A method of your own in one file: the first convolution is shared, the rest stays private.

    PYTHONPATH=examples pfedes run --method shared_stem:SharedStem

All five CNNs begin with a convolution of the same shape. This method averages it, in the spirit of
FedPer; it is here to show the interface, not to win.
"""

from collections.abc import Sequence

from pydantic import Field
from torch import Tensor, nn

from pfedes.methods import (
    Card,
    Client,
    Context,
    Method,
    MethodConfig,
    Payload,
    Received,
    State,
    TensorSpec,
    Upload,
    Wire,
    WireSpec,
    averaged,
    fit_labels,
    required,
)


class SharedStemConfig(MethodConfig):
    """Its hyper-parameters: documented, with a range, and a default."""

    name: str = "shared_stem:SharedStem"
    keep: float = Field(0.0, ge=0, le=1, description="how much of its own stem a client keeps")


class SharedStem(Method[SharedStemConfig]):
    """Down and up travel the weights and biases of the first convolution: 1,216 floats."""

    Config = SharedStemConfig

    @property
    def averages_parameters(self) -> bool:
        return True  # so that median, trimmed_mean, krum and max_norm may be asked for

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        with ctx.streams.ambient("init.stem"):  # a named random stream: the same in every process
            return State(nn.Conv2d(ctx.channels, 16, 5).state_dict())

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload(state.tensors)

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        stem = client.model.get_submodule("conv1")
        stem.load_state_dict(self._mixed(stem.state_dict(), download.tensors))
        loss = fit_labels(client, ctx)  # or `fit` with a loss of your own
        return Upload(loss, stem.state_dict())

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        return State(averaged(uploads, ctx))

    def allowed(self, card: Card, ctx: Context) -> Wire:
        """What may travel, by name and shape. Anything else is refused on both sides."""
        stem = required({"weight": TensorSpec((16, ctx.channels, 5, 5)), "bias": TensorSpec((16,))})
        return Wire(down=WireSpec((stem,)), up=WireSpec((stem,)))

    def _mixed(self, own: dict[str, Tensor], shared: dict[str, Tensor]) -> dict[str, Tensor]:
        keep = self.config.keep
        return {name: keep * own[name] + (1 - keep) * shared[name] for name in own}
