"""A decoded data set as memory-mapped arrays, kept in a cache on disk."""

import hashlib
import json
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pfedes.errors import DataError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Progress = Callable[[str, int, int], None]
"""Called with a label, the number of steps done, and their total."""

LAYOUT = 1  # part of every cache key: a new layout never meets an old cache


def silent(label: str, done: int, total: int) -> None:
    """Shows no progress."""


@dataclass(frozen=True)
class Dataset:
    """Images as one uint8 array (n, height, width, channels), labels as integers.

    The first `official_train` rows are the source's own training part; mean and std (per channel,
    of pixels scaled to 0..1) are taken from them alone.
    """

    name: str
    images: Images
    labels: Labels
    class_names: tuple[str, ...]
    official_train: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    digest: str
    has_images: bool = True  # not where only the rest was kept

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width: the order in which models take them."""
        _, height, width, channels = self.images.shape
        return channels, height, width

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, rows: Labels) -> Images:
        """A copy of some images; the pages they were read from go back to the system.

        What was once looked at would otherwise count as memory of this process, up to all of it.
        """
        if not self.has_images:
            raise DataError(
                f"the images of {self.name} are not available: the run kept only their labels, "
                "names and statistics"
            )
        chosen: Images = self.images[rows]
        if (mapped := getattr(self.images, "_mmap", None)) is not None:
            mapped.madvise(mmap.MADV_DONTNEED)
        return chosen


def cache_root() -> Path:
    """`$PFEDES_CACHE`, else the user's cache directory."""
    if chosen := os.environ.get("PFEDES_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pfedes"


@dataclass(frozen=True)
class Recipe:
    """How to make a data set that is not yet in the cache.

    `fill` writes the images and labels of all rows; `identity` names the exact source, so that
    another source never meets its cached copy.
    """

    name: str
    identity: Sequence[object]
    rows: int
    shape: tuple[int, int, int]  # height, width, channels
    class_names: tuple[str, ...]
    official_train: int
    fill: Callable[[Images, Labels], None]

    def key(self) -> str:
        text = json.dumps([LAYOUT, self.name, *self.identity])
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def open_cached(recipe: Recipe) -> Dataset:
    """The data set, memory-mapped; decoded first if the cache does not have it."""
    home = cache_root() / recipe.key()
    try:
        there = home.is_dir()
    except OSError as error:
        raise DataError(f"cannot read the data cache in {home.parent}: {error.strerror}") from None
    if not there:
        _build(recipe, home)
    return open_arrays(home, recipe.name, recipe.class_names, recipe.official_train)


def open_arrays(
    home: Path, name: str, class_names: tuple[str, ...], official_train: int
) -> Dataset:
    """A data set that was decoded before."""
    try:
        about: dict[str, Any] = json.loads((home / "about.json").read_text())
        images = np.load(home / "images.npy", mmap_mode="r")
        labels = np.load(home / "labels.npy")
        mean, std, digest = tuple(about["mean"]), tuple(about["std"]), about["digest"]
    except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the cached copy of {name} in {home} is damaged ({error}); remove that "
            "directory, and the next run makes it again"
        ) from None
    return Dataset(
        name=name,
        images=images,
        labels=labels,
        class_names=class_names,
        official_train=official_train,
        mean=mean,
        std=std,
        digest=digest,
    )


def digest_of(images: Images, labels: Labels) -> str:
    """Identifies what a data set holds, wherever it came from."""
    sha = hashlib.sha256(labels.tobytes())
    sha.update(images.data)
    return sha.hexdigest()


def _build(recipe: Recipe, home: Path) -> None:
    """Decodes into a directory beside its place, then renames: half a data set is never seen."""
    if not recipe.official_train:
        raise DataError(f"{recipe.name} has no training samples, only test samples")
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    except OSError as error:
        raise DataError(f"cannot write the data cache in {home.parent}: {error.strerror}") from None
    try:
        images = np.lib.format.open_memmap(
            work / "images.npy", mode="w+", dtype=np.uint8, shape=(recipe.rows, *recipe.shape)
        )
        labels = np.empty(recipe.rows, np.int64)
        recipe.fill(images, labels)
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(recipe.class_names):
            raise DataError(
                f"{recipe.name} has labels {labels.min()}..{labels.max()}, "
                f"expected 0..{len(recipe.class_names) - 1}"
            )
        images.flush()
        np.save(work / "labels.npy", labels)
        mean, std = _statistics(images[: recipe.official_train])
        digest = digest_of(images, labels)
        about = {"name": recipe.name, "mean": mean, "std": std, "digest": digest}
        (work / "about.json").write_text(json.dumps(about))
        if not home.exists():  # else another process was faster, with the same result
            work.rename(home)
    except OSError as error:
        if home.is_dir():
            return
        raise DataError(f"cannot write the data cache in {home}: {error.strerror}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _statistics(images: Images) -> tuple[list[float], list[float]]:
    """Per-channel mean and standard deviation of pixels in 0..1, exact, from histograms."""
    values = np.arange(256) / 255.0
    means, stds = [], []
    for channel in range(images.shape[-1]):
        counts = np.zeros(256, np.int64)
        for start in range(0, len(images), 4096):
            pixels = images[start : start + 4096, :, :, channel]
            counts += np.bincount(pixels.ravel(), minlength=256)
        share = counts / counts.sum()
        mean = float(share @ values)
        means.append(mean)
        stds.append(float(np.sqrt(share @ (values - mean) ** 2)))
    return means, stds
