"""A client: a private model, private data, and what a method lets it keep between rounds."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, TypeVar

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor, nn

from pfedes.core.flops import FlopMeter
from pfedes.core.measures import Measures, Tally
from pfedes.core.names import Name
from pfedes.core.precision import Precision
from pfedes.core.samples import Samples
from pfedes.core.scores import Scores
from pfedes.core.shapes import Shape
from pfedes.core.tallying import tally_of
from pfedes.core.wire import UNBOUNDED
from pfedes.errors import WireError

EVALUATION_BATCH = 512

T = TypeVar("T")

Count = Annotated[int, Field(ge=1, le=UNBOUNDED)]
Label = Annotated[int, Field(ge=0)]

Parameters = dict[str, tuple[str, tuple[int, ...]]]
"""Names of a model's tensors, with type and shape."""


@dataclass(frozen=True)
class Card:
    """What the server knows about a client. It does not contain the client's architecture.

    Attributes:
        name: Name of the client.
        samples: Number of its training samples.
        shape: Shape of one input, channels first.
        accepted: Round of its last accepted state; 0 if it has none.
        parameters: Names of the model's tensors with type and shape, if the method needs them.
        classes: Training samples by class id, if the method needs them; 1 for each class if it
            needs the ids only.
        width: Length of the model's representation, if the method needs it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    name: Name
    samples: Count
    shape: Annotated[tuple[Count, ...], Field(min_length=1)]
    accepted: Annotated[int, Field(ge=0)] = 0
    parameters: Parameters | None = None
    classes: dict[Label, Count] | None = None  # training samples of each class it has
    width: Count | None = None  # of the representation

    def revealing(self, needs: Collection[str]) -> "Card":
        """Returns the card without what a method does not need.

        Args:
            needs: What the method declares in `Method.needs`.
        """
        return replace(
            self,
            parameters=self.parameters if "parameters" in needs else None,
            classes=self._classes(needs),
            width=self.width if "width" in needs else None,
        )

    def _classes(self, needs: Collection[str]) -> dict[int, int] | None:
        """With counts, or every count 1 where only the class ids are needed."""
        if "classes" in needs:
            return self.classes
        return dict.fromkeys(self.classes or {}, 1) if "labels" in needs else None


_CARD, _CARDS = TypeAdapter(Card), TypeAdapter(list[Card])


def card_from(text: str) -> Card:
    """A card from JSON, or a WireError: it may come from anybody."""
    return _read(_CARD, text.encode(errors="replace"))


def cards_from(data: bytes) -> list[Card]:
    """The cards of a roster."""
    return _read(_CARDS, data)


def _read(form: TypeAdapter[T], data: bytes) -> T:
    try:
        return form.validate_json(data)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise WireError(": ".join(filter(None, [where, problem["msg"]]))) from None


def parameters_of(model: nn.Module) -> Parameters:
    """Type (as torch names it) and shape of each tensor in the state dict, by name."""
    return {
        name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        for name, tensor in model.state_dict().items()
    }


@dataclass
class Client:
    """A client as a method sees it: private model, private data, and what it keeps.

    Attributes:
        name: Name of the client.
        architecture: Name of its model's architecture.
        model: The private model. Train it in place.
        train: Training samples.
        val: Validation samples; may be empty.
        test: Test samples.
        kept: Tensors that the method keeps at the client between rounds, by name.
        meter: Counts the floating-point operations of local work.
        precision: The client's own choice of precision; None for that of the run.
    """

    name: str
    architecture: str
    model: nn.Module
    train: Samples
    val: Samples
    test: Samples
    kept: dict[str, Tensor] = field(default_factory=dict)
    meter: FlopMeter = field(default_factory=FlopMeter)
    precision: Precision | None = None  # its own choice; None = what the run is configured with

    @property
    def shape(self) -> Shape:
        """Shape of one input, channels first."""
        return self.train.shape

    @property
    def device(self) -> torch.device:
        """Device of its data and its model."""
        return self.train.device

    def state(self) -> dict[str, Tensor]:
        """Returns all tensors that the next round needs: the model's and `kept`."""
        model = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        return model | {f"kept.{name}": value for name, value in self.kept.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restores the model and `kept`.

        Args:
            state: What `state` returned.
        """
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "kept": {}}
        for name, value in state.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = value
        self.model.load_state_dict(parts["model"])
        self.kept = {name: value.to(self.device) for name, value in parts["kept"].items()}

    def score(self, model: nn.Module) -> Scores:
        """Evaluates a model on the client's own validation and test samples.

        Args:
            model: A module that maps a batch of inputs to logits; its mode is left as it was.

        Returns:
            The numbers of correctly classified samples, and results class by class.
        """
        found = Measures(_tally(model, self.val), _tally(model, self.test))
        val, test = found.val, found.test
        return Scores(val.correct, val.samples, test.correct, test.samples, found)


@torch.no_grad()
def _tally(model: nn.Module, samples: Samples) -> Tally:
    if not len(samples):
        return Tally(())
    was_training = model.training
    model.eval()
    try:
        outputs = [model(batch.x) for batch in samples.in_order(EVALUATION_BATCH)]
    finally:
        model.train(was_training)
    # Called where they were computed; then on the CPU, which has doubles.
    called = torch.cat([output.argmax(1) for output in outputs]).cpu()
    return tally_of(samples.labels.cpu(), called, torch.cat(outputs).cpu())
