"""What travels: named tensors and a little metadata, counted, and checked against an allow-list.

The same bytes (safetensors, with the metadata and a SHA-256 in its header) serve as message and
as state file. Nothing here unpickles.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from pfedes.errors import WireError

T = TypeVar("T")

Value = str | int | float | bool | list[int]


@dataclass(frozen=True)
class Payload:
    """Tensors, counted as floats and bytes; and metadata, counted apart."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    meta: dict[str, Value] = field(default_factory=dict)

    @property
    def floats(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors.values())

    @property
    def bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    @property
    def metadata(self) -> int:
        """The number of metadata values; a list counts its entries."""
        return sum(len(v) if isinstance(v, list) else 1 for v in self.meta.values())

    def is_finite(self) -> bool:
        """Whether no number in it is NaN or infinite."""
        floating = [tensor for tensor in self.tensors.values() if tensor.is_floating_point()]
        return all(bool(torch.isfinite(tensor).all()) for tensor in floating)

    def digest(self) -> str:
        """SHA-256 over names, types, shapes, contents and metadata."""
        sha = hashlib.sha256()
        for name in sorted(self.tensors):
            tensor = self.tensors[name]
            sha.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
            raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            sha.update(raw.numpy().data)
        sha.update(json.dumps(self.meta, sort_keys=True).encode())
        return sha.hexdigest()


State = Payload  # what the server holds between rounds has the same form


def under(prefix: str, entries: Mapping[str, T]) -> dict[str, T]:
    """The entries, each name with a prefix."""
    return {prefix + name: value for name, value in entries.items()}


def within(prefix: str, entries: Mapping[str, T]) -> dict[str, T]:
    """The entries whose names have the prefix, without it."""
    return {n.removeprefix(prefix): v for n, v in entries.items() if n.startswith(prefix)}


def encode(payload: Payload) -> bytes:
    """Self-checking bytes of a payload."""
    # Stored contiguous and untied: safetensors refuses shared memory, rightly.
    tensors = {k: v.detach().cpu().contiguous().clone() for k, v in payload.tensors.items()}
    # One entry only: safetensors does not keep the order of several.
    header = {"pfedes": json.dumps({"meta": payload.meta, "sha256": payload.digest()})}
    return safetensors.torch.save(tensors, metadata=header)


def decode(data: bytes) -> Payload:
    """The payload, whole and as it was encoded, or a WireError."""
    try:
        tensors = safetensors.torch.load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["pfedes"])
        payload = Payload(tensors, dict(header["meta"]))
        intact = payload.digest() == header["sha256"]
    # RuntimeError: shapes whose strides overflow, and JSON that is nested too deep.
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise WireError(f"not a pfedes payload: {error}") from None
    if not intact:
        raise WireError("contents do not match their checksum")
    return payload


@dataclass(frozen=True)
class Max:
    """A dimension that may be anything from 0 to `limit`."""

    limit: int


@dataclass(frozen=True)
class TensorSpec:
    """The shape and type that a tensor must have."""

    shape: tuple[int | Max, ...]
    dtype: torch.dtype = torch.float32

    @classmethod
    def of(cls, tensor: Tensor) -> "TensorSpec":
        return cls(tuple(tensor.shape), tensor.dtype)

    def admits(self, tensor: Tensor) -> bool:
        return (
            tensor.dtype == self.dtype
            and tensor.dim() == len(self.shape)
            and all(
                size <= want.limit if isinstance(want, Max) else size == want
                for size, want in zip(tensor.shape, self.shape, strict=True)
            )
        )

    def __str__(self) -> str:
        dims = ", ".join(f"<={d.limit}" if isinstance(d, Max) else str(d) for d in self.shape)
        return f"[{dims}] {str(self.dtype).removeprefix('torch.')}"


@dataclass(frozen=True)
class Labels:
    """A list of distinct class ids in order, one for each row of a tensor."""

    rows_of: str
    among: frozenset[int]

    def admits(self, value: Value, tensors: Mapping[str, Tensor]) -> bool:
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
    """A list of sample counts, one for each row of a tensor."""

    rows_of: str
    at_most: int

    def admits(self, value: Value, tensors: Mapping[str, Tensor]) -> bool:
        return (
            isinstance(value, list)
            and all(type(count) is int and 0 < count <= self.at_most for count in value)
            and len(value) == len(tensors[self.rows_of])
        )

    def __str__(self) -> str:
        return f"the sample counts of the rows of {self.rows_of!r}"


UNBOUNDED = 2**53
"""As good as no bound; beyond, a float no longer holds every whole number."""


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


Option = Mapping[str, TensorSpec]
MetaSpec = type | Labels | Counts | Number | Digest


@dataclass(frozen=True)
class Group:
    """Tensors that travel together, in exactly one of several forms (an empty one: none)."""

    options: tuple[Option, ...]

    def names(self) -> set[str]:
        return {name for option in self.options for name in option}


def required(tensors: Option) -> Group:
    """Tensors that must travel, in this one form."""
    return Group((tensors,))


@dataclass(frozen=True)
class WireSpec:
    """The allow-list of one direction. What is not listed does not travel."""

    groups: tuple[Group, ...] = ()
    meta: Mapping[str, MetaSpec] = field(default_factory=dict)

    def check(self, payload: Payload) -> None:
        """Raises a WireError that names the first thing that does not belong."""
        listed: set[str] = set().union(*(group.names() for group in self.groups))
        for name in payload.tensors:
            if name not in listed:
                raise WireError(f"tensor {name!r} is not on the allow-list")
        for group in self.groups:
            _check_group(group, payload.tensors)
        _check_meta(self.meta, payload)

    def within(self, other: "WireSpec") -> bool:
        """Whether another allow-list lets everything pass that this one does."""
        return self._tensors() <= other._tensors() and self.meta.items() <= other.meta.items()

    def _tensors(self) -> set[tuple[str, TensorSpec]]:
        options = (option for group in self.groups for option in group.options)
        return {entry for option in options for entry in option.items()}


def _check_group(group: Group, tensors: Mapping[str, Tensor]) -> None:
    present = group.names() & tensors.keys()
    option = next((o for o in group.options if o.keys() == present), None)
    if option is None:
        missing = sorted(group.options[0].keys() - present)
        raise WireError(f"tensor {(missing or sorted(present))[0]!r} is missing or out of place")
    for name, spec in option.items():
        if not spec.admits(tensors[name]):
            raise WireError(f"tensor {name!r} is {TensorSpec.of(tensors[name])}, expected {spec}")
        if tensors[name].is_floating_point() and not bool(torch.isfinite(tensors[name]).all()):
            raise WireError(f"tensor {name!r} holds NaN or infinity")


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
