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
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State, TensorSpec, Value
from pfedes.core.shapes import is_image
from pfedes.core.train_config import TrainConfig
from pfedes.core.training import only_images_augmented
from pfedes.core.wire import WireSpec
from pfedes.errors import ConfigError
from pfedes.privacy.encoding import Real, moved_by
from pfedes.section import Section


class MethodConfig(Section):
    """Base of a method's hyper-parameters: a frozen pydantic model.

    Give every field a default, a range and a description that names the paper's symbol; fields
    become keys of `[method]`, options of `--set method.KEY` and lines of `pfedes config`.

    Attributes:
        name: The name of the method in configurations and run directories: `module:Class`, or a
            plain name for a class that only a notebook or a script uses.

    Example:
        >>> from pydantic import Field
        >>> from pfedes import MethodConfig
        >>> class MineConfig(MethodConfig):
        ...     name: str = "my_module:Mine"
        ...     keep: float = Field(0.5, ge=0, le=1, description="rho, the share that stays")
        >>> MineConfig(keep=0.25).keep
        0.25
    """

    local_epochs: ClassVar[tuple[str, ...]] = ()
    """The keys that say how many epochs a client trains besides `train.epochs`."""

    name: str

    def settled(self, train: TrainConfig) -> Self:
        """Fixes values that depend on other settings, when a run is created.

        Args:
            train: The settings of local training.

        Returns:
            The configuration that the run records.
        """
        return self


@dataclass(frozen=True)
class Problem:
    """A client that a method cannot serve.

    Attributes:
        client: Name of the client.
        what: What is wrong with it.
        remedy: What would help.
    """

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
    """What `Method.client_round` returns.

    Attributes:
        loss: Mean training loss of the client's model in the last local epoch.
        tensors: Tensors to send to the server, by name; empty to send nothing.
        meta: Values to send beside them: class ids, counts, numbers.
    """

    loss: float
    tensors: dict[str, Tensor] = field(default_factory=dict)
    meta: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """An upload that passed every check, as `Method.aggregate` receives it.

    Attributes:
        card: The client's card, with `card.samples` for weighting.
        payload: What the client sent.
    """

    card: Card
    payload: Payload


@dataclass(frozen=True)
class Wire:
    """The allow-lists of a method, for one client.

    Attributes:
        down: What the server may send to the client.
        up: What the client may send to the server.
    """

    down: WireSpec
    up: WireSpec


C = TypeVar("C", bound=MethodConfig)

Need = Literal["parameters", "classes", "labels", "width"]
"""`classes` are ids with counts, `labels` the ids alone."""


class Method(ABC, Generic[C]):
    """Base of all methods: what travels, and what both sides do with it.

    Override `client_round`, and whatever else the method needs; without more, it shares nothing.
    A method object serves all clients, possibly in several processes, and must keep nothing
    between calls: clients keep tensors in `client.kept`, the server in its state.

    Args:
        config: The hyper-parameters; by default `Config(**hyper_parameters)`.
        hyper_parameters: Fields of the method's `Config`.

    Raises:
        ConfigError: A hyper-parameter is unknown or out of range.

    Example:
        >>> from pfedes import PFedES
        >>> PFedES(mu=0.2).config.mu
        0.2
        >>> PFedES(mu=2)
        Traceback (most recent call last):
        pfedes.errors.ConfigError: PFedES: mu: Input should be less than or equal to 0.5
    """

    Config: ClassVar[type[MethodConfig]]
    display_name: ClassVar[str] = ""
    """The name of the method in tables; '' = its `name`."""

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
        """The method's name in configurations and run directories."""
        return self.config.name

    @property
    def needs(self) -> frozenset[Need]:
        """What the method reads from a card besides name, samples and shape.

        Any of `"labels"` (class ids), `"classes"` (ids with counts), `"width"` (of the
        representation) and `"parameters"` (names and shapes of the model). Clients send no more.
        """
        return frozenset()

    @property
    def averages_parameters(self) -> bool:
        """Whether uploads are parameters that every rule of `[aggregation]` can combine."""
        return False

    @property
    def additive(self) -> bool:
        """Whether clients are sent the state as it is, and `moved` adds their mean change to it.

        Only then can a change be clipped, summed with others and drowned in noise: `[privacy]`.
        """
        return False

    def client_epochs(self, ctx: Context) -> int:
        """The largest number of epochs for which a client trains any model in a round.

        A participant's `limits.epochs` is compared with it.

        Args:
            ctx: The round and the settings of the run.
        """
        own = (int(getattr(self.config, key)) for key in self.config.local_epochs)
        return max([ctx.train.epochs, *own])

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        """Names the clients that the method cannot serve, before round 1.

        Args:
            cards: The cards of all clients, sorted by name.
            ctx: The round, 0, and the settings of the run.

        Returns:
            One problem with its remedy per unserved client; any ends the run with exit code 2.
        """
        return []

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        """Creates the server's state before round 1.

        Args:
            cards: The cards of all clients, sorted by name.
            ctx: The round, 0, and the settings of the run; draw random numbers from `ctx.streams`.

        Returns:
            The state, which `download` and `aggregate` receive.
        """
        return State()

    def prepare(self, client: Client, ctx: Context) -> None:
        """Puts into `client.kept` what a client keeps besides its model.

        Called once per client, when it is selected for the first time.

        Args:
            client: The client, with its initial model.
            ctx: The round and the settings of the run.
        """

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        """Creates what the server sends to a client.

        Args:
            state: The server's state.
            card: The client's card; `card.accepted` is its last accepted round, 0 if none.
            ctx: The round and the settings of the run.

        Returns:
            The download. It must be on the allow-list of `allowed`.
        """
        return Payload()

    @abstractmethod
    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        """Does a client's local work. Reads as the paper's algorithm.

        Must depend only on the arguments; random numbers come from `ctx.streams`.

        Args:
            client: The client, as it was after its last accepted round. Train `client.model` in
                place, and keep other tensors in `client.kept`.
            download: What `download` created, after the client's checks.
            ctx: The round and the settings of the run.

        Returns:
            The loss and what to send. It must be on the allow-list of `allowed`.
        """

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        """Creates the server's new state.

        Args:
            state: The present state; do not change it.
            uploads: The accepted uploads, sorted by client name; at least one.
            ctx: The round and the settings of the run.

        Returns:
            The state after the round.
        """
        return state

    def moved(self, state: State, change: Real, ctx: Context) -> State:
        """Combines clients' changes into the server's new state, for additive methods.

        Args:
            state: The server's state.
            change: The clients' mean change as one vector: all tensors in the order of their names.
            ctx: The round and the settings of the run.

        Returns:
            The state after the round.
        """
        return State(moved_by(state.tensors, change))

    def change(self, upload: Received, download: Payload, ctx: Context) -> Tensors:
        """Computes the change that an upload asks for, which `aggregation.max_norm` bounds.

        The default subtracts the download, name by name. A method whose uploads have other names
        than its downloads must override it; this is checked before round 1.

        Args:
            upload: An upload that passed all other checks.
            download: What its client was sent.
            ctx: The round and the settings of the run.

        Returns:
            Differences by name. Their common norm is compared with the bound.
        """
        sent = download.tensors
        return {
            name: tensor - sent[name]
            for name, tensor in upload.payload.tensors.items()
            if tensor.is_floating_point()
        }

    def personal(self, client: Client, download: Payload | None, ctx: Context) -> nn.Module:
        """Returns the model that is evaluated, exported and used for predictions.

        Args:
            client: The client after its last accepted round.
            download: What the client would be sent now; None if the method is not evaluated after
                aggregation.
            ctx: The round and the settings of the run.
        """
        return client.model

    def evaluated_after_aggregation(self, ctx: Context) -> bool:
        """Whether all clients are evaluated after every aggregation, with a fresh download.

        Args:
            ctx: The settings of the run; `ctx.after_aggregation` is the user's choice.
        """
        return ctx.after_aggregation

    def allowed(self, card: Card, ctx: Context) -> Wire:
        """Lists everything that may travel between the server and a client.

        Both sides compare every payload with it and refuse anything else.

        Args:
            card: The client's card.
            ctx: The round and the settings of the run.

        Returns:
            One allow-list for each direction.
        """
        return Wire(down=WireSpec(), up=WireSpec())


def averaged(
    uploads: Sequence[Received], ctx: Context, averaging: Averaging = "weighted"
) -> dict[str, Tensor]:
    """Combines uploads into one: their mean, or by the configured robust rule.

    Args:
        uploads: Accepted uploads with the same tensors.
        ctx: The round and the settings of the run; `ctx.aggregation` names the rule.
        averaging: `"weighted"` by training samples, or `"uniform"`.

    Returns:
        The combined tensors, by name.
    """
    tensors = [upload.payload.tensors for upload in uploads]
    return combine(tensors, weights(uploads, ctx, averaging), ctx.aggregation)


def weights(
    uploads: Sequence[Received], ctx: Context, averaging: Averaging = "weighted"
) -> list[float]:
    """The weight of each upload in the mean: its share of the samples, within the bounds."""
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
