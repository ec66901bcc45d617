"""What a run promises about the changes that its clients send."""

from typing import Literal, Self

from pydantic import Field, model_validator

from pfedes.core.context import Metadata, Summed
from pfedes.errors import ConfigError
from pfedes.privacy.accounting import noise_for
from pfedes.section import Section

Mode = Literal["off", "central", "distributed", "local"]

MOST_NOISE = 1e5
"""Beyond, a sum of many noisy changes could leave the whole numbers of 64 bits."""


class PrivacyConfig(Section):
    """How clients' changes are clipped and drowned, and what may go with them."""

    mode: Mode = Field(
        "off",
        description="who adds noise: off | central (the server) | distributed (all, in a secure "
        "sum) | local (each client, enough alone)",
    )
    clip: float = Field(
        1.0, gt=0, description="C, largest L2 norm of a client's change (upload minus download)"
    )
    noise: float = Field(
        0.0,
        ge=0,
        le=MOST_NOISE,
        description="z, standard deviation of the noise on the sum, over C; 0 = from epsilon",
    )
    epsilon: float = Field(
        0.0, ge=0, description="largest privacy loss of a client; 0 = only reported"
    )
    delta: float = Field(
        1e-5, gt=0, lt=1, description="delta of the guarantee; below 1 over the number of clients"
    )
    sampling: Literal["fixed"] = Field(
        "fixed", description="how clients are chosen: fixed (the same number in every round)"
    )
    secure_sum: bool = Field(
        False, description="the server sees sums of changes only; mode distributed needs it"
    )
    least: int = Field(3, ge=2, description="fewest contributions in a secure sum")
    metadata: Metadata = Field(
        "all",
        description="what goes with an upload over a network: all | scores (counts of right "
        "answers) | none; unless all, clients have equal weight",
    )

    @model_validator(mode="after")
    def _all_of_use(self) -> Self:
        if self.mode != "off" and not self.noise and not self.epsilon:
            raise ValueError("set noise or epsilon: without noise there is no privacy to account")
        if self.mode == "distributed" and not self.secure_sum:
            raise ValueError("mode distributed hides its noise in a sum: set secure_sum = true")
        if self.mode in ("central", "local") and self.secure_sum:
            raise ValueError(f"mode {self.mode} does without secure_sum: set mode = distributed")
        return self

    @property
    def noisy(self) -> bool:
        """Whether changes are clipped and noise is added."""
        return self.mode != "off"

    def keeps(self, promise: "PrivacyConfig") -> bool:
        """Whether this is what was promised: noise that was left open may be fixed by now."""
        said = {"noise": promise.noise or self.noise, "epsilon": self.epsilon}
        lowered = not promise.epsilon or 0 < self.epsilon <= promise.epsilon
        return lowered and self == promise.model_copy(update=said)

    @property
    def summed(self) -> Summed:
        """Whether clients send whole numbers to be added up, and what each counts in the sum."""
        if not self.secure_sum:
            return "no"
        return "alike" if self.noisy else "by samples"

    def settled(self, releases: int) -> Self:
        """Fixes the noise so that this many releases cost a client at most epsilon."""
        if not self.noisy or self.noise:
            return self
        noise = noise_for(self.epsilon, releases, self.delta)
        if noise > MOST_NOISE:
            raise ConfigError(
                f"privacy.epsilon = {self.epsilon:g} needs noise of {noise:g} times the clip "
                f"in {releases} releases, at most {MOST_NOISE:g} is allowed"
            )
        return self.model_copy(update={"noise": noise})
