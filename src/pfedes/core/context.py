"""What both sides of a method know about a round, and the settings of local training."""

from dataclasses import dataclass, field
from typing import Literal, Self

from pydantic import Field, model_validator

from pfedes.core.aggregation import AggregationConfig
from pfedes.core.flops import FlopMeter
from pfedes.core.precision import Precision
from pfedes.core.seeding import Streams
from pfedes.section import Section


class TrainConfig(Section):
    """How long, with whom, and how clients learn."""

    rounds: int = Field(10, ge=1, lt=10**9, description="T, the number of communication rounds")
    participation: float = Field(1.0, gt=0, le=1, description="C, the share of clients per round")
    epochs: int = Field(2, ge=1, description="E, local epochs of a client's model in a round")
    batch_size: int = Field(64, ge=1, description="B, samples per step")
    lr: float = Field(0.01, gt=0, description="eta_w, learning rate of clients' models")
    momentum: float = Field(0.9, ge=0, lt=1, description="of SGD")
    weight_decay: float = Field(0.001, ge=0, description="of SGD")
    clip: float = Field(50.0, ge=0, description="largest norm of a gradient; 0 = no clipping")
    augment: bool = Field(False, description="flip, crop and erase training images at random")
    optimiser: Literal["fresh", "kept"] = Field(
        "fresh",
        description="momentum at the start of a round: fresh | kept (for parameters that stay at "
        "the "
        "client)",
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none",
        description="none | balanced: samples of rare classes count more, by their client's counts",
    )
    sampler: Literal["shuffled", "balanced"] = Field(
        "shuffled",
        description="shuffled | balanced: an epoch sees equally many samples of each own class",
    )
    min_uploads: int = Field(
        1, ge=1, description="fewest valid uploads of a round; with fewer it fails"
    )
    patience: int = Field(
        0, ge=0, description="rounds without better validation after which the run stops; 0 = never"
    )
    precision: Precision = Field(
        "float32",
        description="precision of matrix products in local training: float32 | bf16; the rest is "
        "float32",
    )

    @model_validator(mode="after")
    def _balanced_once(self) -> Self:
        if self.class_weights == self.sampler == "balanced":
            raise ValueError(
                "class_weights and sampler both balance classes and together favour rare "
                "ones: choose one"
            )
        return self

    def selected(self, clients: int) -> int:
        """K, the number of clients asked in a round."""
        return max(1, round(self.participation * clients))


Summed = Literal["no", "by samples", "alike"]
Metadata = Literal["all", "scores", "none"]


@dataclass(frozen=True)
class Caution:
    """What a client does not let the server learn, see `[limits]` of a participant; 0, 1 = all."""

    shortest_batch: int = 0  # samples; the uploaded part is not trained on shorter ones
    crowd: float = 0.0  # share of the samples, two at least, that a unit must answer to
    silent: float = 1.0  # the largest share of a download's hidden units that answer to fewer


@dataclass(frozen=True)
class Context:
    """What both sides know about the present round.

    Attributes:
        round: Number of the round; 0 before the first.
        rounds: Number of all rounds, T.
        streams: Random streams, named by purpose, round and client. Use no other randomness.
        train: Settings of local training.
        aggregation: Rule by which uploads are combined.
        classes: Number of classes.
        channels: Number of channels of images and signals.
        pool: Architectures of the configuration; which client has which stays private.
        after_aggregation: Whether the user wants the headline measured after aggregation.
        max_share: Largest weight of one client; 1 for no bound.
        caution: What a client does not let the server learn, from its `[limits]`.
        summed: Whether clients send whole numbers to be added up, and by what weight.
        measures: Whether participants tell how often each class was called what.
        metadata: What goes with an upload over a network; unless all, clients count alike.
        meter: Counts the floating-point operations of the server in this round.
    """

    round: int
    rounds: int
    streams: Streams
    train: TrainConfig
    aggregation: AggregationConfig
    classes: int
    channels: int
    pool: tuple[str, ...]
    after_aggregation: bool
    max_share: float = 1.0
    caution: Caution = Caution()
    summed: Summed = "no"
    metadata: Metadata = "all"
    measures: bool = False
    meter: FlopMeter = field(default_factory=FlopMeter, compare=False, repr=False)
