"""The head that LG-FedAvg, FedGH, FedRE and FedSSA share: one linear layer for everybody."""

from collections.abc import Callable, Sequence

from pydantic import Field
from torch import Tensor, nn

from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State, TensorSpec
from pfedes.core.training import fit_labels, train_rows
from pfedes.errors import ModelError
from pfedes.methods.base import C, Method, MethodConfig, Problem, check_widths
from pfedes.models.head import head_of, head_parameters


class SharedHead(Method[C]):
    """A method whose server holds one head and sends it whole, as LG-FedAvg does."""

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        return check_widths(cards, f"{type(self).__name__} shares the head")

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        return State(initial_head(cards[0].width or 0, ctx).state_dict())

    def prepare(self, client: Client, ctx: Context) -> None:
        if head_of(client.model).bias is None:
            raise ModelError(
                f"its head has no bias, and {self.name} shares one: build the last linear layer "
                "with bias=True"
            )

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload(state.tensors)

    def personal(self, client: Client, download: Payload | None, ctx: Context) -> nn.Module:
        if download is not None:
            head_of(client.model).load_state_dict(download.tensors)
        return client.model


class TrainedHeadConfig(MethodConfig):
    """How a server trains the head that it shares."""

    server_lr: float = Field(0.01, ge=0, description="learning rate of the global head")
    server_epochs: int = Field(1, ge=1, description="epochs of the global head in a round")
    server_batch: int = Field(10, ge=0, description="received rows per step; 0 = all")


def trained_head(
    state: State,
    rows: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    config: TrainedHeadConfig,
    ctx: Context,
) -> State:
    """The server's head after learning `targets` from what clients sent."""
    head = initial_head(rows.shape[1], ctx)
    head.load_state_dict(state.tensors)
    train_rows(
        head,
        rows,
        targets,
        lambda some, wanted: loss(head(some), wanted),
        lr=config.server_lr,
        epochs=config.server_epochs,
        batch=config.server_batch,
        ctx=ctx,
    )
    return State(head.state_dict())


def initial_head(width: int, ctx: Context) -> nn.Linear:
    """The head before round 1, the same for everybody."""
    with ctx.streams.ambient("init.head"):
        return nn.Linear(width, ctx.classes)


def fit_head(client: Client, download: Payload, ctx: Context) -> float:
    """The client's model learns its labels, with the head it was sent to begin with."""
    head_of(client.model).load_state_dict(download.tensors)
    return fit_labels(client, ctx, received=head_parameters(client.model))


def rows_of_head(rows: int, card: Card) -> dict[str, TensorSpec]:
    """The form of so many rows of the head, one for each of as many classes."""
    return {"weight": TensorSpec((rows, card.width or 0)), "bias": TensorSpec((rows,))}
