"""Data sets that another machine sent here, identified by their digest."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pfedes.data.dataset import Dataset, cache_root, digest_of, open_arrays
from pfedes.errors import DataError

FILES = ("images.npy", "labels.npy")


@dataclass(frozen=True)
class Label:
    """The values that travel with the arrays of a data set."""

    name: str
    class_names: tuple[str, ...]
    official_train: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    digest: str

    @classmethod
    def of(cls, dataset: Dataset) -> "Label":
        return cls(**{key: getattr(dataset, key) for key in cls.__dataclass_fields__})


def received(digest: str) -> Dataset | None:
    """The data set with that digest, memory-mapped, if it was sent here."""
    home = _home(digest)
    if not home.is_dir():
        return None
    about = json.loads((home / "about.json").read_text())
    return open_arrays(home, about["name"], tuple(about["class_names"]), about["official_train"])


def keep(work: Path, label: Label) -> None:
    """Gives arrays that have arrived in a directory their place, if they are what they should be.

    The directory is beside that place, so that the data set appears by one rename.
    """
    images = np.load(work / FILES[0], mmap_mode="r")
    labels = np.load(work / FILES[1])
    if digest_of(images, labels) != label.digest:
        raise DataError(f"{label.name} has arrived damaged")
    (work / "about.json").write_text(json.dumps(asdict(label)))
    home = _home(label.digest)
    try:
        work.rename(home)
    except OSError:
        if not home.is_dir():  # else another process was faster, with the same result
            raise
        shutil.rmtree(work)


def _home(digest: str) -> Path:
    return cache_root() / f"received-{digest[:32]}"
