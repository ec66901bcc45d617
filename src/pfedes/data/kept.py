"""The part of a data set that a run keeps: everything except the images.

Predictions need the names of the classes and the size and statistics of the images; model cards
need the number of samples of each class at each client. Neither needs the images.
"""

import json
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike

from pfedes.core.payload import Payload
from pfedes.data.dataset import Dataset
from pfedes.errors import DamageError

ABOUT = ("name", "class_names", "shape", "official_train", "mean", "std", "digest")


def kept_of(dataset: Dataset) -> Payload:
    """The part of its data set that a run stores."""
    labels = torch.from_numpy(dataset.labels.astype(smallest_labels(len(dataset.class_names))))
    return Payload({"labels": labels}, {k: json.dumps(getattr(dataset, k)) for k in ABOUT})


def smallest_labels(classes: int) -> DTypeLike:
    """The type in which labels of so many classes take least space."""
    return np.uint8 if classes <= 256 else np.int64


def dataset_from(kept: Payload, origin: str) -> Dataset:
    """The data set without images; a DamageError if that is not what is stored."""
    try:
        about: dict[str, Any] = {key: json.loads(str(kept.meta[key])) for key in ABOUT}
        labels = kept.tensors["labels"].numpy().astype(np.int64)
        classes, shape = tuple(map(str, about["class_names"])), tuple(map(int, about["shape"]))
        statistics = [tuple(map(float, about[key])) for key in ("mean", "std")]
        channels, height, width = shape
        fits = (
            labels.ndim == 1
            and bool(((labels >= 0) & (labels < len(classes))).all())
            and min(shape) > 0
            and all(len(values) == channels for values in statistics)
            and all(isfinite(value) for values in statistics for value in values)
        )
        if not fits:
            raise ValueError("labels, shape and statistics do not fit together")
        return Dataset(
            name=str(about["name"]),
            # Has the size of the images and takes no memory; `pixels` refuses to give any.
            images=np.broadcast_to(np.uint8(0), (len(labels), height, width, channels)),
            labels=labels,
            class_names=classes,
            official_train=int(about["official_train"]),
            mean=statistics[0],
            std=statistics[1],
            digest=str(about["digest"]),
            has_images=False,
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DamageError(f"{origin} is damaged: {error}") from None
