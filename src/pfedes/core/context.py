"""What both sides of a method know about a round."""

from dataclasses import dataclass, field
from typing import Literal

from pfedes.core.aggregation import AggregationConfig
from pfedes.core.flops import FlopMeter
from pfedes.core.seeding import Streams
from pfedes.core.train_config import TrainConfig

Summed = Literal["no", "by samples", "alike"]
Metadata = Literal["all", "scores", "none"]


@dataclass(frozen=True)
class Caution:
    """How much a client hides from the server, see `[limits]` of a participant; 0, 1 = nothing."""

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
        measures: Whether participants send their results class by class.
        metadata: What goes with an upload over a network; unless all, weights are equal.
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
