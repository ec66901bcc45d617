"""What a method is: what travels, and what both sides do with it.

A method knows nothing of processes, networks, files or progress bars. It is driven by the round
loop of `pfedes.federation.loop`, on the server's side with cards and uploads, on the client's side
with a `Client`. It keeps nothing between calls: state comes in and goes out.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import ValidationError
from torch import Tensor, nn

from pfedes.core.aggregation import (
    Averaging,
    Tensors,
    Voices,
    combine,
    weights_of,
)
from pfedes.core.client import Card, Client
from pfedes.core.context import Context, TrainConfig
from pfedes.core.payload import Payload, State, TensorSpec, Value
from pfedes.core.shapes import is_image
from pfedes.core.training import only_images_augmented
from pfedes.core.wire import WireSpec
from pfedes.errors import ConfigError
from pfedes.section import Section


class MethodConfig(Section):
    """A method's hyper-parameters; every field names the symbol of the paper."""

    local_epochs: ClassVar[tuple[str, ...]] = ()
    """The keys that say how many epochs a client trains besides `train.epochs`."""

    name: str

    def settled(self, train: TrainConfig) -> Self:
        """The configuration with everything fixed that depends on others when a run is made."""
        return self


@dataclass(frozen=True)
class Problem:
    """Something a method cannot serve, and what would help."""

    client: str
    what: str
    remedy: str


def in_one_line(problems: Sequence[Problem]) -> str:
    """The first few problems, and what would help."""
    shown = [f"{problem.client}: {problem.what}" for problem in problems[:3]]
    more = [f"and {len(problems) - 3} more"] if len(problems) > 3 else []
    remedies = list(dict.fromkeys(problem.remedy for problem in problems))
    return f"{'; '.join(shown + more)} ({'; '.join(remedies)})"


@dataclass(frozen=True)
class Upload:
    """What a client sends back, and the mean training loss of its model in the last epoch."""

    loss: float
    tensors: dict[str, Tensor] = field(default_factory=dict)
    meta: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """An upload that passed every check, as `aggregate` sees it."""

    card: Card
    payload: Payload


@dataclass(frozen=True)
class Wire:
    """The allow-lists of both directions, as far as the method has a say."""

    down: WireSpec
    up: WireSpec


C = TypeVar("C", bound=MethodConfig)

Need = Literal["parameters", "classes", "labels", "width"]
"""`classes` are ids with counts, `labels` the ids alone."""


class Method(ABC, Generic[C]):
    """Base of all methods. The defaults are those of a method that shares nothing."""

    Config: ClassVar[type[MethodConfig]]
    display_name: ClassVar[str] = ""
    """What tables call the method; '' = its name."""

    config: C

    def __init__(self, config: C | None = None, **hyper_parameters: Any) -> None:
        try:
            # The class's own Config is the C it was declared with, which a checker cannot see.
            self.config = config or self.Config(**hyper_parameters)  # type: ignore[assignment]
        except ValidationError as error:
            problem = error.errors()[0]
            # What is wrong with several keys at once has no place.
            where = [type(self).__name__, ".".join(map(str, problem["loc"]))]
            raise ConfigError(": ".join([*filter(None, where), problem["msg"]])) from None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def needs(self) -> frozenset[Need]:
        """What the method must find on a client's card besides name, samples and shape."""
        return frozenset()

    @property
    def averages_parameters(self) -> bool:
        """Whether uploads are parameters that any rule of `[aggregation]` can combine."""
        return False

    def client_epochs(self, ctx: Context) -> int:
        """The most epochs that a client trains any model for in a round.

        A participant's `limits.epochs` is compared with it.
        """
        own = (int(getattr(self.config, key)) for key in self.config.local_epochs)
        return max([ctx.train.epochs, *own])

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        """Before round 1: which clients this method cannot serve, and the remedy."""
        return []

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        """What the server holds before round 1."""
        return State()

    def prepare(self, client: Client, ctx: Context) -> None:
        """Puts into `client.kept` what it keeps besides its model, at its first selection."""

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        """What this client is sent."""
        return Payload()

    @abstractmethod
    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        """The client's local work. Reads as the paper's algorithm."""

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        """The server's new state. Uploads come sorted by client name."""
        return state

    def change(self, upload: Received, download: Payload, ctx: Context) -> Tensors:
        """What an upload would change, for methods that average parameters.

        The default subtracts the download, name by name. A method whose uploads have other names
        than its downloads must override it; this is checked before round 1.
        """
        sent = download.tensors
        return {
            name: tensor - sent[name]
            for name, tensor in upload.payload.tensors.items()
            if tensor.is_floating_point()
        }

    def personal(self, client: Client, download: Payload | None, ctx: Context) -> nn.Module:
        """The model that is evaluated, exported and predicted with.

        `download` is what the client would be sent now, or None where the method is not evaluated
        after aggregation.
        """
        return client.model

    def evaluated_after_aggregation(self, ctx: Context) -> bool:
        """Whether the headline is measured on all clients with what they would be sent now."""
        return ctx.after_aggregation

    def allowed(self, card: Card, ctx: Context) -> Wire:
        """Everything that may travel between the server and this client."""
        return Wire(down=WireSpec(), up=WireSpec())


def averaged(
    uploads: Sequence[Received], ctx: Context, averaging: Averaging = "weighted"
) -> dict[str, Tensor]:
    """The uploads as one: their mean, by training samples or plain, or as configured."""
    tensors = [upload.payload.tensors for upload in uploads]
    return combine(tensors, weights(uploads, ctx, averaging), ctx.aggregation)


def weights(
    uploads: Sequence[Received], ctx: Context, averaging: Averaging = "weighted"
) -> list[float]:
    """What each upload counts in the mean: its share of the samples, as far as that is bounded."""
    samples = {upload.card.name: upload.card.samples for upload in uploads}
    if averaging != "weighted" or ctx.aggregation.kind != "mean":
        return weights_of(list(samples.values()), averaging)
    voices = Voices(ctx.max_share)
    counts = voices.among(samples)
    voices.log(ctx.round)
    return weights_of(counts)


def spec_of(model: nn.Module) -> dict[str, TensorSpec]:
    """The allow-list entry of a whole model."""
    return {name: TensorSpec.of(tensor) for name, tensor in model.state_dict().items()}


def check_widths(cards: Sequence[Card], why: str) -> list[Problem]:
    """Representations that meet must have one width."""
    first = cards[0]
    return [
        Problem(
            card.name,
            f"its representation has {card.width} numbers, that of {first.name} {first.width}",
            f"{why}: give all models a last layer with {first.width} inputs",
        )
        for card in cards
        if card.width != first.width
    ]


def check_augmentation(cards: Sequence[Card], ctx: Context) -> list[Problem]:
    """Flips, crops and holes are things of images."""
    return [
        Problem(card.name, only_images_augmented(card.shape), "set train.augment = false")
        for card in cards
        if ctx.train.augment and not is_image(card.shape)
    ]
