"""The form of an allow-list: what may travel, by names, shapes, types and metadata.

A method fills it in; `fleet/allow_list.py` checks it at the client, `federation/admission.py` at
the server, and the filter of a participant's engine (`deploy/participant/filter.py`) once more.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from pfedes.core.payload import Payload, TensorSpec, Value
from pfedes.errors import WireError


@dataclass(frozen=True)
class Labels:
    """Metadata that is a list of distinct class ids in order, one for each row of a tensor.

    Args:
        rows_of: Name of the tensor.
        among: The class ids that may be in the list.
    """

    rows_of: str
    among: frozenset[int]

    def admits(self, value: Value, tensors: Mapping[str, Tensor]) -> bool:
        """Returns whether a value is such a list.

        Args:
            value: The value of the metadata.
            tensors: The tensors that it came with.
        """
        return (
            isinstance(value, list)
            and all(type(label) is int and label in self.among for label in value)
            and value == sorted(set(value))
            and len(value) == len(tensors[self.rows_of])
        )

    def __str__(self) -> str:
        return f"the ascending class ids of the rows of {self.rows_of!r}"


@dataclass(frozen=True)
class Counts:
    """A list of sample counts, one for each row of a tensor, each with its own largest value."""

    rows_of: str
    most: tuple[int, ...]

    def admits(self, value: Value, tensors: Mapping[str, Tensor]) -> bool:
        return (
            isinstance(value, list)
            and len(value) == len(self.most) == len(tensors[self.rows_of])
            and all(
                type(count) is int and 0 < count <= most
                for count, most in zip(value, self.most, strict=True)
            )
        )

    def __str__(self) -> str:
        return f"the sample counts of the rows of {self.rows_of!r}"


UNBOUNDED = 2**53
"""Practically no bound; larger floats no longer hold every whole number."""


@dataclass(frozen=True)
class Number:
    """A number of one type, within bounds."""

    kind: type[int] | type[float]
    least: float = 0
    most: float = UNBOUNDED

    def admits(self, value: Value, tensors: Mapping[str, Tensor]) -> bool:
        return (
            type(value) is self.kind
            and isinstance(value, int | float)
            and self.least <= value <= self.most
        )

    def __str__(self) -> str:
        if self.most >= UNBOUNDED:
            return f"{self.kind.__name__} of {self.least:g} or more"
        return f"{self.kind.__name__} from {self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class Digest:
    """A SHA-256 in hexadecimal."""

    def admits(self, value: Value, tensors: Mapping[str, Tensor]) -> bool:
        return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None

    def __str__(self) -> str:
        return "a SHA-256"


@dataclass(frozen=True)
class Hex:
    """So many bytes in hexadecimal."""

    size: int

    def admits(self, value: Value, tensors: Mapping[str, Tensor]) -> bool:
        pattern = f"[0-9a-f]{{{2 * self.size}}}"
        return isinstance(value, str) and re.fullmatch(pattern, value) is not None

    def __str__(self) -> str:
        return f"{self.size} bytes in hexadecimal"


@dataclass(frozen=True)
class Base64:
    """Bytes as a text of at most so many characters."""

    longest: int

    def admits(self, value: Value, tensors: Mapping[str, Tensor]) -> bool:
        return (
            isinstance(value, str)
            and len(value) <= self.longest
            and len(value) % 4 == 0
            and re.fullmatch("[0-9A-Za-z+/]*={0,2}", value) is not None
        )

    def __str__(self) -> str:
        return f"bytes in base64, at most {self.longest} characters"


LARGEST_NUMBER = 1e6
"""The bound of numbers that describe a class: the square of a very large one overflows."""


def bounded_rows(*shape: int) -> TensorSpec:
    """The allow-list entry for numbers per class."""
    return TensorSpec(shape, least=-LARGEST_NUMBER, most=LARGEST_NUMBER)


Option = Mapping[str, TensorSpec]
MetaSpec = type | Labels | Counts | Number | Digest | Hex | Base64


@dataclass(frozen=True)
class Group:
    """Tensors that travel together, in exactly one of several forms (an empty one: none)."""

    options: tuple[Option, ...]

    def names(self) -> set[str]:
        return {name for option in self.options for name in option}


def required(tensors: Option) -> Group:
    """Lists tensors that must travel together, for `WireSpec.groups`.

    Args:
        tensors: The form of each tensor, by name.

    Returns:
        A group with this single option.
    """
    return Group((tensors,))


@dataclass(frozen=True)
class WireSpec:
    """The allow-list of one direction: what is not listed does not travel.

    Attributes:
        groups: Tensors that travel together, see `required`.
        meta: Type or form of every value beside the tensors, by name; all must be there.

    Example:
        >>> import torch
        >>> from pfedes import Payload
        >>> from pfedes.methods import TensorSpec, WireSpec, required
        >>> spec = WireSpec((required({"w": TensorSpec((2, 3))}),), {"count": int})
        >>> spec.check(Payload({"w": torch.zeros(2, 3)}, {"count": 7}))
        >>> spec.check(Payload({"w": torch.zeros(3, 3)}, {"count": 7}))
        Traceback (most recent call last):
        pfedes.errors.WireError: tensor 'w' is [3, 3] float32, expected [2, 3] float32
    """

    groups: tuple[Group, ...] = ()
    meta: Mapping[str, MetaSpec] = field(default_factory=dict)

    def check(self, payload: Payload) -> None:
        """Compares a payload with the list.

        Args:
            payload: What is about to leave, or has arrived.

        Raises:
            WireError: Something is missing, of another form, not finite or not listed; the message
                names the first.
        """
        forms = {name: TensorSpec.of(tensor) for name, tensor in payload.tensors.items()}
        for name, spec in self.check_forms(forms).items():
            spec.check_numbers(name, payload.tensors[name])
        _check_meta(self.meta, payload)

    def check_forms(self, forms: Mapping[str, TensorSpec]) -> dict[str, TensorSpec]:
        """Compares the forms of tensors with the list, before the tensors exist.

        Args:
            forms: The form of each tensor, by name.

        Returns:
            The form that each tensor must have.

        Raises:
            WireError: A tensor is missing, of another form or not listed.
        """
        listed: set[str] = set().union(*(group.names() for group in self.groups))
        for name in forms:
            if name not in listed:
                raise WireError(f"tensor {name!r:.100} is not on the allow-list")
        found: dict[str, TensorSpec] = {}
        for group in self.groups:
            found |= _fitting(group, forms)
        return found

    @property
    def most_bytes(self) -> int:
        """The size in bytes of all tensors together, each group in its largest form."""
        return sum(
            max(sum(tensor.most_bytes for tensor in option.values()) for option in group.options)
            for group in self.groups
        )

    def within(self, other: "WireSpec") -> bool:
        """Returns whether another allow-list lets everything pass that this one does.

        Args:
            other: The other allow-list.
        """
        return self._tensors() <= other._tensors() and self.meta.items() <= other.meta.items()

    def _tensors(self) -> set[tuple[str, TensorSpec]]:
        options = (option for group in self.groups for option in group.options)
        return {entry for option in options for entry in option.items()}


def _fitting(group: Group, forms: Mapping[str, TensorSpec]) -> Option:
    """The option of a group that the tensors have chosen, and fit."""
    present = group.names() & forms.keys()
    option = next((o for o in group.options if o.keys() == present), None)
    if option is None:
        missing = sorted(group.options[0].keys() - present)
        raise WireError(
            f"tensor {(missing or sorted(present))[0]!r} is missing or does not belong there"
        )
    for name, spec in option.items():
        if not spec.admits(forms[name]):
            raise WireError(f"tensor {name!r} is {forms[name]}, expected {spec}")
    return option


def _check_meta(expected: Mapping[str, MetaSpec], payload: Payload) -> None:
    meta = payload.meta
    for name in meta.keys() - expected.keys():
        raise WireError(f"metadata {name!r} is not on the allow-list")
    for name, spec in expected.items():
        if name not in meta:
            raise WireError(f"metadata {name!r} is missing")
        value = meta[name]
        if isinstance(spec, type):
            fits, wanted = type(value) is spec, spec.__name__
        else:
            fits, wanted = spec.admits(value, payload.tensors), str(spec)
        if not fits:
            found = f"{value!r:.40} ({type(value).__name__})"
            raise WireError(f"metadata {name!r} is {found}, expected {wanted}")
        if isinstance(value, float) and not math.isfinite(value):
            raise WireError(f"metadata {name!r} is {value}")
