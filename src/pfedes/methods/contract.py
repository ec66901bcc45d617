"""What the round loop takes for granted of a method, checked before round 1."""

from collections.abc import Iterable, Sequence
from typing import Any

from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.protocol import RESERVED_META
from pfedes.core.wire import WireSpec
from pfedes.errors import MethodError
from pfedes.methods.base import Method


def check_contract(method: Method[Any], cards: Sequence[Card], ctx: Context) -> None:
    """Raises a MethodError if the method's allow-lists contradict what the loop does with them."""
    for card in cards:
        wire = method.allowed(card, ctx)
        check_metadata(method, wire.up.meta)
        if method.averages_parameters and type(method).change is Method.change:
            _check_change(method, wire.up, wire.down)


def check_metadata(method: Method[Any], meta: Iterable[str]) -> None:
    """A method's metadata must not replace what the loop itself reports under the same name."""
    for name in sorted(RESERVED_META & set(meta)):
        raise MethodError(
            f"{method.name}: metadata {name!r} is reserved for the round loop: "
            "choose another name in allowed() and client_round()"
        )


def _check_change(method: Method[Any], up: WireSpec, down: WireSpec) -> None:
    """The default `change` subtracts the download from the upload, name by name."""
    received = {name for group in down.groups for name in group.names()}
    for group in up.groups:
        for option in group.options:
            for name, spec in option.items():
                if spec.dtype.is_floating_point and name not in received:
                    raise MethodError(
                        f"{method.name}: averages_parameters is true, but the upload's tensor "
                        f"{name!r} is not in the download: override change() to say what an "
                        "upload changes"
                    )
