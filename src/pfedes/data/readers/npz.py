"""Pictures in one .npz file with the names that MedMNIST uses: train_images, train_labels, ..."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfedes.data.dataset import Images, Labels, Progress, Recipe
from pfedes.data.tables import PICTURES
from pfedes.errors import DataError, said
from pfedes.files import at_home, reason

SPLITS = ("train", "val", "test")

Arrays = dict[str, tuple[NDArray[Any], NDArray[np.int64]]]


def read_npz(source: str) -> Arrays:
    """Bytes of pixels (n, height, width[, channels]) and labels of each split; no val if none."""
    path = Path(at_home(source.removeprefix(PICTURES)))
    try:
        # Never pickle: a file of arrays of objects could run anything.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            names = [name for name in file.files if name.endswith(("_images", "_labels"))]
            given = {name: file[name] for name in names}
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}") from None
    except Exception as error:  # zipfile, zlib and numpy raise exceptions of any kind
        raise DataError(f"{path} is not an .npz file of arrays: {said(error)}") from None
    found = {}
    for split in SPLITS:
        pair = f"{split}_images", f"{split}_labels"
        if split == "val" and not given.keys() & {*pair}:
            continue
        if missing := [name for name in pair if name not in given]:
            raise DataError(f"{path} has no array {missing[0]!r}")
        found[split] = _checked(given[pair[0]], given[pair[1]], f"{path}: {split}")
    return found


def npz_recipe(source: str, channels: int, progress: Progress) -> Recipe:
    """All pictures as one data set, the test split at its end; classes are called by numbers."""
    parts = read_npz(source)
    images = np.concatenate([part[0] for part in parts.values()])
    labels = np.concatenate([part[1] for part in parts.values()])
    if images.shape[-1] == 1 < channels:
        images = images.repeat(channels, axis=-1)
    if images.shape[-1] != channels:
        raise DataError(
            f"{source}: its pictures have {images.shape[-1]} channels, set data.channels to that"
        )

    def fill(out: Images, numbers: Labels) -> None:
        out[:], numbers[:] = images, labels
        progress("reading pictures (once)", len(labels), len(labels))

    sha = hashlib.sha256(np.ascontiguousarray(images).data)
    sha.update(labels.tobytes())
    return Recipe(
        name="npz",
        identity=[sha.hexdigest()],
        rows=len(labels),
        shape=images.shape[1:],
        class_names=tuple(str(number) for number in range(int(labels.max()) + 1)),
        official_train=len(labels) - len(parts["test"][1]),
        fill=fill,
    )


def _checked(
    images: NDArray[Any], labels: NDArray[Any], where: str
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    if images.ndim == 3:
        images = images[..., None]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] not in (1, 3):
        raise DataError(
            f"{where} images are {images.dtype} of shape {list(images.shape)}: expected bytes "
            "(n, height, width) or with 1 or 3 channels"
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or (len(labels) and labels.min() < 0):
        raise DataError(
            f"{where} labels are {labels.dtype} of shape {list(labels.shape)}: expected one "
            "class number for each picture"
        )
    if len(labels) != len(images):
        raise DataError(f"{where} has {len(images)} images, but {len(labels)} labels")
    if not len(labels):
        raise DataError(f"{where} is empty")
    return images, labels.astype(np.int64)
