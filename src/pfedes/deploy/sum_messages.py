"""The two exchanges of a secure sum as messages: to mask for a set of members, and to open it."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

import numpy as np
import torch
from pydantic import Field, TypeAdapter, ValidationError

from pfedes.config import Config
from pfedes.core.names import Name
from pfedes.core.payload import Max, Payload, TensorSpec, Value
from pfedes.core.protocol import Task
from pfedes.core.wire import Digest, MetaSpec, Number, WireSpec, required
from pfedes.errors import WireError
from pfedes.section import Section
from pfedes.securesum.credentials import Credential
from pfedes.securesum.masking import MOST_MEMBERS, Ready
from pfedes.securesum.member import SEALED_BYTES, Masked
from pfedes.securesum.shamir import SHARE_BYTES

MASK, OPEN = "mask", "open"
MASKED, SHARES, OPENED = "masked", "shares", "opened"
UNCOUNTED = frozenset({SHARES, OPENED})
"""Tensors that are keys, not numbers that anybody learned."""

SAID: dict[str, MetaSpec] = {"noted": Number(int), "members": Number(int, least=1), "set": Digest()}
"""Their metadata: the round, the number of members, and the digest of the set."""


def asked_for(config: Config, task: Task) -> str:
    """The digest of what a member was asked for, which must be the same for all in a sum."""
    return sha256(f"{config.asked_digest()} {task.download.digest()}".encode()).hexdigest()


class SumEntry(Section):
    """A member as the coordinator introduces it."""

    name: Name
    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    nonce: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    certificate: Annotated[str, Field(max_length=2**16)]
    signature: Annotated[str, Field(max_length=1024)]

    @property
    def ready(self) -> Ready:
        return Ready(self.name, bytes.fromhex(self.key), bytes.fromhex(self.nonce))

    @property
    def credential(self) -> Credential:
        try:
            signature = base64.b64decode(self.signature, validate=True)
        except ValueError:
            raise WireError(f"the signature of {self.name} cannot be read") from None
        return Credential(self.name, bytes.fromhex(self.key), self.certificate.encode(), signature)


_ENTRIES = TypeAdapter(Annotated[list[SumEntry], Field(max_length=MOST_MEMBERS)])


@dataclass(frozen=True)
class SumRequest:
    """A request to a member of a sum, with its run and round."""

    client: str
    run: str
    round: int

    def message(self, kind: str, meta: dict[str, Value], payload: Payload) -> Payload:
        about: dict[str, Value] = {"kind": kind, "client": self.client, "run": self.run}
        return Payload(payload.tensors, {**about, "round": self.round, **meta})

    def to_mask(self, entries: Sequence[SumEntry]) -> Payload:
        members = json.dumps([entry.model_dump() for entry in entries])
        return self.message(MASK, {"members": members}, Payload())

    def to_open(self, digest: bytes, sealed: Sequence[bytes]) -> Payload:
        tensors = {SHARES: _rows(sealed, SEALED_BYTES)}
        return self.message(OPEN, {"set": digest.hex()}, Payload(tensors))


def members_in(message: Payload) -> list[SumEntry]:
    """The members that a request names."""
    try:
        return _ENTRIES.validate_json(str(message.meta.get("members")))
    except ValidationError as error:
        raise WireError(f"members that cannot be read: {error.errors()[0]['msg']}") from None


def opening_in(message: Payload) -> tuple[bytes, list[bytes]]:
    """The set that is to be opened, and the shares for the member that opens it."""
    shape = (Max(MOST_MEMBERS), SEALED_BYTES)
    spec = WireSpec((required({SHARES: TensorSpec(shape, torch.uint8)}),))
    spec.check(Payload(message.tensors))
    digest = message.meta.get("set")
    if not Digest().admits(digest or "", {}):
        raise WireError("the set to be opened has no digest")
    return bytes.fromhex(str(digest)), _bytes_of(message, SHARES)


def masked_message(masked: Masked) -> dict[str, torch.Tensor]:
    return {
        MASKED: torch.from_numpy(masked.values),
        SHARES: _rows(masked.shares, SEALED_BYTES),
    }


def masked_in(message: Payload) -> Masked:
    return Masked(message.tensors[MASKED].numpy(), tuple(_bytes_of(message, SHARES)))


def opened_message(opened: Sequence[bytes]) -> dict[str, torch.Tensor]:
    return {OPENED: _rows(opened, SHARE_BYTES)}


def opened_in(message: Payload) -> list[bytes]:
    return _bytes_of(message, OPENED)


def masked_spec(size: int, members: int | Max) -> WireSpec:
    """The allow-list for a member that masks so many integers."""
    values = TensorSpec((size,), torch.int64)
    shares = TensorSpec((members, SEALED_BYTES), torch.uint8)
    return WireSpec((required({MASKED: values, SHARES: shares}),), SAID)


def opened_spec(members: int | Max) -> WireSpec:
    """The allow-list for a member that opens."""
    opened = TensorSpec((members, SHARE_BYTES), torch.uint8)
    return WireSpec((required({OPENED: opened}),), SAID)


def _rows(rows: Sequence[bytes], width: int) -> torch.Tensor:
    data = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), width)
    return torch.from_numpy(data.copy())


def _bytes_of(message: Payload, name: str) -> list[bytes]:
    return [row.tobytes() for row in message.tensors[name].numpy()]
