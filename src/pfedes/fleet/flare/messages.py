"""Our messages in FLARE's envelopes."""

import json

import numpy as np
import torch
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.shareable import Shareable

from pfedes.errors import WireError
from pfedes.payload import Payload

META = "pfedes"
"""Where an envelope has our metadata, as JSON: msgpack knows no number of more than 64 bits."""


def to_shareable(payload: Payload) -> Shareable:
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in payload.tensors.items()}
    return DXO(DataKind.WEIGHTS, arrays, {META: json.dumps(payload.meta)}).to_shareable()


def to_payload(shareable: Shareable) -> Payload:
    """What an envelope holds, or a WireError: it may come from anybody."""
    try:
        dxo = from_shareable(shareable)
        arrays, meta = dxo.data, json.loads(dxo.meta[META])
    except Exception as error:  # whatever FLARE raises for what is none of its envelopes
        raise WireError(f"a message that cannot be read: {type(error).__name__}") from None
    if not (isinstance(meta, dict) and isinstance(arrays, dict)):
        raise WireError("a message without metadata or tensors")
    if wrong := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise WireError(f"a message in which {wrong[0]!r:.60} is no array")
    try:
        tensors = {str(name): torch.from_numpy(array.copy()) for name, array in arrays.items()}
    except (TypeError, ValueError) as error:  # texts and objects, or another byte order
        raise WireError(f"a message with an array of another kind: {error}") from None
    return Payload(tensors, meta)
