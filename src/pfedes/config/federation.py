"""What participants of a federation agree on, and how they meet."""

from pydantic import Field

from pfedes.core.names import Name
from pfedes.section import Section


class FederationConfig(Section):
    """The table `[federation]`: the terms of participants, and how they connect."""

    classes: tuple[str, ...] = Field((), description="names of all classes, in order")
    channels: int = Field(
        3, ge=1, description="channels of images and signals; grey images are repeated"
    )
    mean: tuple[float, ...] = Field((), description="mean per channel, of pixels in 0..1; [] = 0")
    std: tuple[float, ...] = Field(
        (), description="standard deviation per channel, of pixels in 0..1; [] = 1"
    )
    participants: tuple[Name, ...] = Field(
        (), description="names of the participants that may join from their own machines"
    )
    host: str = Field(
        "localhost", description="pfedes serve: host name or address of the coordinator"
    )
    port: int = Field(
        8002, ge=1, le=65535, description="pfedes serve: port that participants connect to"
    )
    quorum: int = Field(0, ge=0, description="fewest participants that must take part; 0 = all")
    timeout: int = Field(600, ge=1, description="seconds that a participant may take for a round")
    max_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="largest weight of one participant among three or more (and at most 4 "
        "medians); 1 = any",
    )
    measures: bool = Field(
        False,
        description="whether participants also send their confusion matrices and AUC, so that "
        "evaluate.metric can choose the best round; each must share 'measures'",
    )
    max_message: int = Field(64, ge=1, le=2000, description="largest message, in MiB")


NETWORK = {"participants", "host", "port", "quorum", "timeout", "max_message"}
"""Keys of the connection, which may change during a run; the others are the terms."""
