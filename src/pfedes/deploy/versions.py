"""Whether a coordinator and a participant fit together: they compare versions when they meet."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pfedes.core.payload import Payload, Value
from pfedes.errors import WireError
from pfedes.version import __version__

PROTOCOL = 1
"""Counts changes of what the two sides say to each other."""

PACKAGES = ("torch", "nvflare")
TOLD = ("protocol", "pfedes", *PACKAGES)
LONGEST = 60  # characters of a version


def own_versions() -> dict[str, Value]:
    """The versions that this side sends to the other."""
    return {"protocol": PROTOCOL, "pfedes": __version__, **dict(map(_package, PACKAGES))}


def enrolment_message(client: str, config: str) -> Payload:
    """The first message of a coordinator: the participant's name, the terms, its versions."""
    return Payload({}, {"kind": "enroll", "client": client, "config": config, **own_versions()})


def check_versions(theirs: Mapping[str, Any], who: str) -> list[str]:
    """Refuses another protocol or series of pfedes; says which other differences there are.

    Versions before 1.0 are compatible if major and minor number are equal, later ones if the major
    number is.
    """
    own = own_versions()
    told = {key: theirs.get(key) for key in TOLD}
    if not (type(told["protocol"]) is int and all(map(_is_version, map(told.get, TOLD[1:])))):
        raise WireError(
            f"{who} sends no versions, as an older pfedes would; this side runs "
            f"{own['pfedes']}: install the same on both sides"
        )
    if told["protocol"] != PROTOCOL or _series(str(told["pfedes"])) != _series(str(own["pfedes"])):
        raise WireError(
            f"{who} runs pfedes {told['pfedes']} (protocol {told['protocol']}), this side "
            f"runs {own['pfedes']} (protocol {PROTOCOL}): install the same on both sides"
        )
    effects = {
        "torch": "the bits of a simulation are not promised",
        "nvflare": "the two were not tested together",
    }
    return [
        f"{who} runs {name} {told[name]}, this side {own[name]}: {effect}"
        for name, effect in effects.items()
        if told[name] != own[name]
    ]


def _series(text: str) -> list[str]:
    numbers = text.split(".")
    return numbers[:2] if numbers[0] == "0" else numbers[:1]


def _is_version(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST and value.isprintable()


def _package(name: str) -> tuple[str, str]:
    """Without importing it: a process that only waits needs no torch."""
    try:
        return name, version(name)
    except PackageNotFoundError:
        return name, ""
