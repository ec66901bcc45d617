"""The settings of local training: `[train]`."""

from typing import Literal, Self

from pydantic import Field, model_validator

from pfedes.core.precision import Precision
from pfedes.section import Section


class TrainConfig(Section):
    """The table `[train]`: rounds, selection of clients, and local training."""

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
        "the client)",
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
