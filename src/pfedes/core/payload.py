"""Payloads: named tensors with a few values, whose sizes are counted.

The same bytes (safetensors, with the metadata and a SHA-256 in the header) serve as message and as
state file. Nothing is unpickled.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from pfedes.errors import DamageError, WireError
from pfedes.files import (
    read,
)

T = TypeVar("T")

Value = str | int | float | bool | list[int]

LARGEST_HEADER = 8 * 2**20  # bytes: names and shapes of all tensors of a model, and metadata
DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
"""Types of numbers by their names in safetensors."""


@dataclass(frozen=True)
class Payload:
    """What travels, and what is stored: named tensors and a few values.

    Attributes:
        tensors: Tensors by name, counted as floats and bytes.
        meta: Strings, numbers, flags and lists of whole numbers by name, counted apart.

    Example:
        >>> import torch
        >>> from pfedes import Payload
        >>> payload = Payload({"w": torch.zeros(2, 3)}, {"classes": [4, 9]})
        >>> payload.floats, payload.bytes, payload.metadata
        (6, 24, 2)
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    meta: dict[str, Value] = field(default_factory=dict)

    @property
    def floats(self) -> int:
        """The number of numbers in all tensors."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    @property
    def bytes(self) -> int:
        """The size of all tensors in bytes, without names and metadata."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    @property
    def metadata(self) -> int:
        """The number of metadata values; a list counts its entries."""
        return sum(len(v) if isinstance(v, list) else 1 for v in self.meta.values())

    def is_finite(self) -> bool:
        """Returns whether no tensor has a NaN or an infinity."""
        floating = [tensor for tensor in self.tensors.values() if tensor.is_floating_point()]
        return all(bool(torch.isfinite(tensor).all()) for tensor in floating)

    def digest(self) -> str:
        """Returns the SHA-256 of names, types, shapes, numbers and metadata, in hexadecimal."""
        sha = hashlib.sha256()
        for name in sorted(self.tensors):
            tensor = self.tensors[name]
            sha.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
            raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            sha.update(raw.numpy().data)
        sha.update(json.dumps(self.meta, sort_keys=True).encode())
        return sha.hexdigest()


def whole(value: Value) -> int:
    """A whole number of the metadata; a WireError if it is something else."""
    if type(value) is not int:
        raise WireError(f"metadata is {value!r:.40} ({type(value).__name__}), expected an int")
    return value


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


class AllowList(Protocol):
    """A list that tensors are compared with before they are made: see `pfedes.core.wire`."""

    def check_forms(self, forms: Mapping[str, "TensorSpec"]) -> object:
        """Raises a WireError that names the first tensor that does not belong, by its form."""
        ...


def decode(data: bytes, expected: AllowList | None = None) -> Payload:
    """The payload, whole and as it was encoded, or a WireError.

    Where it is known what to `expect`, no tensor is made before names, types and shapes of all of
    them were found on that allow-list. A message without any tensor, such as a failure, always is
    what it says.
    """
    if expected is not None and (forms := forms_in(data)):
        expected.check_forms(forms)
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


def forms_in(data: bytes) -> dict[str, "TensorSpec"]:
    """Names, types and shapes of the tensors in encoded bytes, read from their header alone."""
    length = int.from_bytes(data[:8], "little")
    if not 0 < length <= min(LARGEST_HEADER, len(data) - 8):
        raise WireError(
            f"its header has {length:,} bytes, more than the {LARGEST_HEADER:,} that are read"
        )
    try:
        header = json.loads(data[8 : 8 + length])
        return {
            name: TensorSpec(tuple(map(int, entry["shape"])), DTYPES[entry["dtype"]])
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise WireError(f"not a pfedes payload: {type(error).__name__}: {error}") from None


@dataclass(frozen=True)
class Max:
    """A dimension that may be anything from 0 to `limit`."""

    limit: int


@dataclass(frozen=True)
class TensorSpec:
    """The form of a tensor on an allow-list.

    Attributes:
        shape: Its sizes; a `Max(n)` allows any size up to n.
        dtype: Its type.
        least: The smallest number that it may hold.
        most: The largest number that it may hold.
    """

    shape: tuple[int | Max, ...]
    dtype: torch.dtype = torch.float32
    least: float = -math.inf
    most: float = math.inf

    @classmethod
    def of(cls, tensor: Tensor) -> "TensorSpec":
        """Returns the form that a tensor has.

        Args:
            tensor: The tensor.
        """
        return cls(tuple(tensor.shape), tensor.dtype)

    @property
    def most_bytes(self) -> int:
        """The size in bytes of the largest tensor of this form."""
        sizes = (size.limit if isinstance(size, Max) else size for size in self.shape)
        return math.prod(sizes) * self.dtype.itemsize

    def admits(self, other: "TensorSpec") -> bool:
        """Returns whether a tensor's form fits this one.

        Args:
            other: The form of the tensor.
        """
        return (
            other.dtype == self.dtype
            and len(other.shape) == len(self.shape)
            and all(
                isinstance(size, int) and 0 <= size <= want.limit
                if isinstance(want, Max)
                else size == want
                for size, want in zip(other.shape, self.shape, strict=True)
            )
        )

    def check_numbers(self, name: str, tensor: Tensor) -> None:
        """Checks that all numbers are finite and within the bounds.

        Args:
            name: The tensor's name, for the message.
            tensor: The tensor.

        Raises:
            WireError: A number is not.
        """
        if not tensor.is_floating_point() or not tensor.numel():
            return
        if not bool(torch.isfinite(tensor).all()):
            raise WireError(f"tensor {name!r} holds NaN or infinity")
        for found in map(float, tensor.aminmax()):
            if not self.least <= found <= self.most:
                raise WireError(
                    f"tensor {name!r} holds {found:g}, allowed: {self.least:g} to {self.most:g}"
                )

    def __str__(self) -> str:
        dims = ", ".join(f"<={d.limit}" if isinstance(d, Max) else str(d) for d in self.shape)
        return f"[{dims}] {str(self.dtype).removeprefix('torch.')}"


def read_payload(path: Path) -> Payload:
    """The payload in a file, whole, or a DamageError that names the file."""
    return parse_payload(read(path), str(path))


def parse_payload(data: bytes, origin: str) -> Payload:
    """The payload that bytes are, or a DamageError that names their origin."""
    try:
        return decode(data)
    except WireError as error:
        raise DamageError(f"{origin} is damaged: {error}") from None
