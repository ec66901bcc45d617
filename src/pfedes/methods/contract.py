"""Checks before round 1 what the round loop assumes of a method."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.payload import State, TensorSpec
from pfedes.core.protocol import RESERVED_META, Task
from pfedes.core.wire import WireSpec
from pfedes.errors import MethodError
from pfedes.methods.base import Method, Upload, Wire
from pfedes.privacy.encoding import MOST_NUMBERS


def check_contract(method: Method[Any], cards: Sequence[Card], ctx: Context) -> None:
    """Raises a MethodError if the method's allow-lists contradict what the loop does with them."""
    for card in cards:
        wire = _wire_of(method, method.allowed(card, ctx))
        _check_forms(method, wire)
        check_metadata(method, wire.up.meta)
        if method.averages_parameters and type(method).change is Method.change:
            _check_change(method, wire.up, wire.down)


def check_shared(name: str, state: State, tasks: Iterable[Task]) -> None:
    """Raises a MethodError if what clients share cannot be clipped and drowned in noise."""
    for tensor, values in state.tensors.items():
        if not values.is_floating_point():
            kind = str(values.dtype).removeprefix("torch.")
            raise MethodError(
                f"{name}: {tensor!r} is shared and holds whole numbers ({kind}), to which no noise "
                "can be added: take a model without them, or privacy.mode = 'off'"
            )
    if state.floats > MOST_NUMBERS:
        raise MethodError(
            f"{name} shares {state.floats:,} numbers: noise on more than {MOST_NUMBERS:,} "
            "would hide any signal; share less (pfedes shares 443), or privacy.mode = 'off'"
        )
    for task in tasks:
        if task.download.tensors.keys() != state.tensors.keys():
            raise MethodError(f"{name} is additive, but does not send {task.client} its state")


def upload_of(returned: object) -> Upload:
    """Checks that `client_round` returned an upload, and returns it."""
    if not isinstance(returned, Upload):
        raise MethodError(f"client_round() returned {returned!r:.60}, expected an Upload")
    return returned


def check_metadata(method: Method[Any], meta: Iterable[str]) -> None:
    """A method's metadata must not replace what the loop itself reports under the same name."""
    for name in sorted(RESERVED_META & set(meta)):
        raise MethodError(
            f"{method.name}: metadata {name!r} is reserved for the round loop: "
            "choose another name in allowed() and client_round()"
        )


def check_kept(kept: Mapping[str, object]) -> None:
    """What a client keeps is stored, and only tensors can be."""
    for name, value in kept.items():
        if not isinstance(value, Tensor):
            raise MethodError(f"client.kept[{name!r}] is {value!r:.60}, expected a tensor")


def _wire_of(method: Method[Any], returned: object) -> Wire:
    if not isinstance(returned, Wire):
        raise MethodError(f"{method.name}: allowed() returned {returned!r:.60}, expected a Wire")
    return returned


def _check_forms(method: Method[Any], wire: Wire) -> None:
    """A shape is easily written where its form belongs."""
    groups = [*wire.down.groups, *wire.up.groups]
    listed: list[tuple[str, object]] = [
        entry for group in groups for option in group.options for entry in option.items()
    ]
    for name, form in listed:
        if not isinstance(form, TensorSpec):
            raise MethodError(
                f"{method.name}: allowed() lists the tensor {name!r} as {form!r:.40}: "
                "it must be a TensorSpec, such as TensorSpec((3, 5))"
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
