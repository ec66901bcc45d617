"""The privacy budget of a run, in words."""

from collections.abc import Iterator, Mapping
from typing import Any

from pfedes.core.context import Metadata
from pfedes.privacy.config import PrivacyConfig

SIMULATED = "that of a simulation: reproducible noise protects nobody"


NOT_COVERED: Mapping[Metadata, str] = {
    "all": "samples, losses and scores of each client, which leave as they are",
    "scores": "scores of each client, which leave as they are",
    "none": "who answered, and when",
}


def privacy_facts(
    spent: Mapping[str, Any], metadata: Metadata, *, simulated: bool
) -> Iterator[tuple[str, str]]:
    """The figures of `summary["privacy"]`, for people."""
    limit = f" of {spent['limit']:g}" if spent["limit"] else ""
    yield "mode", f"{spent['mode']}; trusts {spent['trusts']}"
    yield "epsilon", f"{max(spent['epsilon']):.2f}{limit} at delta {spent['delta']:g}"
    yield "if a client's data were replaced", f"epsilon {spent['epsilon_replacement']:.2f}"
    yield "neighbours", spent["neighbours"]
    yield "releases of a client", f"{min(spent['releases'])} to {max(spent['releases'])}"
    yield "noise", f"{spent['z']:g} times the clip of {spent['clip']:g}, on the sum of a round"
    yield (
        "noise on the mean",
        f"{spent['ratio']:.2f} times as long as the largest change of a client",
    )
    yield "not covered", NOT_COVERED[metadata]
    if simulated:
        yield "this noise", SIMULATED


def secure_sum_facts(privacy: PrivacyConfig, *, elsewhere: bool) -> Iterator[tuple[str, str]]:
    """Facts of a secure sum: the server saw only sums of changes."""
    if not privacy.secure_sum:
        return
    if not elsewhere:
        yield "secure sum", "the same integers as with one, added up in the open: a simulation"
        return
    yield "secure sum", f"the coordinator saw sums of at least {privacy.least} clients' changes"
    yield (
        "protects from",
        "a coordinator that does not forge participants; from any, those who compared the "
        "fingerprints of keys that their owners made themselves",
    )
    if not privacy.noisy:  # else it is said of epsilon already
        yield "not covered", NOT_COVERED[privacy.metadata]
