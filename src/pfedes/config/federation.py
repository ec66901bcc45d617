"""What participants of a federation agree on, and how they meet."""

from pydantic import Field

from pfedes.core.names import Name
from pfedes.section import Section


class FederationConfig(Section):
    """What participants with models and data of their own must agree on."""

    classes: tuple[str, ...] = Field((), description="the names of all classes, in order")
    channels: int = Field(3, ge=1, description="of images and signals; grey images are repeated")
    mean: tuple[float, ...] = Field((), description="per channel, of pixels in 0..1; () = 0")
    std: tuple[float, ...] = Field((), description="likewise; () = 1")
    participants: tuple[Name, ...] = Field(
        (), description="who may join from a machine of their own, by 'pfedes join'"
    )
    host: str = Field("localhost", description="pfedes serve: the coordinator's name or address")
    port: int = Field(8002, ge=1, le=65535, description="pfedes serve: for everybody who joins")
    quorum: int = Field(0, ge=0, description="how many must be there; 0 = all")
    timeout: int = Field(600, ge=1, description="seconds that a participant may take for a round")
    max_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="largest weight of one participant, from three on (and 4 medians); 1 = any",
    )
    max_message: int = Field(64, ge=1, le=2000, description="largest message, in MiB")


NETWORK = {"participants", "host", "port", "quorum", "timeout", "max_message"}
"""Keys that say how people meet, not what they agree on."""
