"""What a run of participants keeps of their data: everything except the inputs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pfedes.core.payload import Payload
from pfedes.data.kept import smallest_labels
from pfedes.errors import DamageError
from pfedes.population.own_data import SPLITS, OwnData, Split

ABOUT = "participants"


def kept_of_all(data: Mapping[str, OwnData], classes: int) -> Payload:
    """The values that a run stores of its participants' data."""
    labels = {
        f"{part}.{name}": torch.from_numpy(
            getattr(own, part).labels.astype(smallest_labels(classes))
        )
        for name, own in data.items()
        for part in SPLITS
    }
    about = {
        name: {
            "shape": own.train.inputs.shape[1:],
            "pixels": own.train.inputs.dtype == np.uint8,
            "digest": own.digest(),
        }
        for name, own in data.items()
    }
    return Payload(labels, {ABOUT: json.dumps(about)})


def all_from(kept: Payload, names: Sequence[str], classes: int, origin: str) -> dict[str, OwnData]:
    """Participants' data without inputs; a DamageError if that is not what is stored."""
    try:
        about = json.loads(str(kept.meta[ABOUT]))
        return {name: _one(kept, name, about[name], classes) for name in names}
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DamageError(f"{origin} is damaged: {error}") from None


def _one(kept: Payload, name: str, about: Mapping[str, Any], classes: int) -> OwnData:
    shape, digest = tuple(map(int, about["shape"])), str(about["digest"])
    if not (shape and min(shape) > 0 and digest) or (about["pixels"] and len(shape) != 3):
        raise ValueError(f"shape {list(shape)} and digest {digest!r} of {name} do not fit")
    # Has the size of the inputs and takes no memory.
    nothing = np.uint8(0) if about["pixels"] else np.float32(0)
    splits = {}
    for part in SPLITS:
        labels = kept.tensors[f"{part}.{name}"].numpy().astype(np.int64)
        if labels.ndim != 1 or not ((labels >= 0) & (labels < classes)).all():
            raise ValueError(f"labels of {name} are not those of {classes} classes")
        splits[part] = Split(np.broadcast_to(nothing, (len(labels), *shape)), labels)
    return OwnData(splits["train"], splits["val"], splits["test"], kept_digest=digest)
