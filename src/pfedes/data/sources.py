"""Makes a `Dataset` from the name of a data source in the configuration."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from pfedes.data.dataset import Dataset, Images, Labels, Progress, Recipe, open_cached, silent
from pfedes.data.received import received
from pfedes.data.tables import is_table
from pfedes.errors import DataError, unknown
from pfedes.files import directory, reason
from pfedes.section import Section


class DataConfig(Section):
    """Which data, and how pixels become numbers."""

    source: str = Field(
        "digits",
        description="name of the data set, as 'pfedes data list' shows it",
    )
    dir: str = Field("", description="the data set's directory or its parent; '' = $PFEDES_DATA")
    image_size: int = Field(
        0, ge=0, description="folder and hf: resize images to this height and width; 0 = unchanged"
    )
    channels: Literal[1, 3] = Field(
        3, description="folder, hf and npz: channels of pictures; 1 converts them to grey"
    )
    limit: int = Field(0, ge=0, description="use only this many samples, stratified; 0 = all")
    normalise: Literal["dataset", "imagenet", "none"] = Field(
        "dataset", description="dataset (its own training statistics) | imagenet | none"
    )


IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of each channel."""

LARGEST = 2**40  # bytes of generated data
MOST_DIGITS = 13  # of its numbers, none of which can be more

SOURCES = {
    "digits": "1,797 handwritten digits of scikit-learn, resized to 3x32x32; needs no files",
    "cifar10": "60,000 photographs in 10 classes; parquet files or the official binary archive",
    "cifar100": "60,000 photographs in 100 classes; parquet files or the official binary archive",
    "synthetic": "generated, any size: synthetic:samples=10000,classes=10,size=32,channels=3",
    "folder": "your own images: folder:PATH with PATH/CLASS/*.png, or PATH/{train,test}/CLASS/",
    "csv": "your own table: csv:FILE with named columns, explained in [table]; natural partition",
    "parquet": "your own table: parquet:FILE, otherwise like csv",
    "npz": "pictures in one file, in MedMNIST's form: npz:FILE",
    "hf": "a Hugging Face data set: hf:owner/name, or a copy of it in --data-dir; extra 'hub'",
}


def load(config: DataConfig, progress: Progress = silent) -> Dataset:
    """Opens the configured data set, decoding it into the cache the first time.

    Where `$PFEDES_RECEIVED` holds a digest, it is the copy that somebody sent to this machine.
    """
    if (digest := os.environ.get("PFEDES_RECEIVED")) and (sent := received(digest)) is not None:
        return sent
    return open_cached(_recipe(config, progress))


def has_sites(source: str) -> bool:
    """Whether pictures come with words about each, among which the site may be."""
    return source.startswith(("folder:", "hf:"))


def about_rows(config: DataConfig, columns: Sequence[str]) -> dict[str, list[str]]:
    """The columns that describe each picture, by name, in the order of `load`.

    Of a folder in its metadata.csv, of a Hugging Face data set in its columns.
    """
    name, _, argument = config.source.partition(":")
    if not has_sites(config.source):
        raise DataError(f"data set {name!r} has no columns: only folder, hf and tables have")
    if name == "folder":
        from pfedes.data.readers.folder import about_pictures

        return about_pictures(directory(argument, "folder"), columns)
    from pfedes.data.readers.huggingface import about_examples

    return about_examples(argument, config.dir, columns)


def _recipe(config: DataConfig, progress: Progress) -> Recipe:
    name, _, argument = config.source.partition(":")
    if name not in SOURCES:
        raise DataError(unknown("data set", name, SOURCES))
    if is_table(config.source):
        raise DataError(
            f"data set {name!r} is divided by its sites: set partition.kind = 'natural'"
        )
    if bool(argument) is not (name in ("folder", "hf", "npz")) and name != "synthetic":
        needs = "needs one, as 'pfedes data list' shows" if not argument else "takes none"
        raise DataError(f"data set {name!r}: argument {argument!r}, but it {needs}")
    # Imported where used: the readers' libraries take a moment, and most runs need none.
    match name:
        case "synthetic":
            return _synthetic(argument, progress)
        case "digits":
            return _digits()
        case "folder":
            from pfedes.data.readers.folder import folder_recipe

            return folder_recipe(
                directory(argument, "folder"), config.image_size, config.channels, progress
            )
        case "hf":
            from pfedes.data.readers.huggingface import hub_recipe

            return hub_recipe(argument, config.dir, config.image_size, config.channels, progress)
        case "npz":
            from pfedes.data.readers.npz import npz_recipe

            return npz_recipe(config.source, config.channels, progress)
        case _:
            return _cifar(name, data_directory(config, name), progress)


def _cifar(name: str, home: Path, progress: Progress) -> Recipe:
    from pfedes.data.readers.cifar_binary import binary_recipe
    from pfedes.data.readers.parquet import parquet_recipe

    try:
        recipe = parquet_recipe(name, home, progress) or binary_recipe(name, home)
    except OSError as error:
        raise DataError(f"{error.filename or home} cannot be read: {reason(error)}") from None
    if recipe is None:
        raise DataError(
            f"no {name} in {home}: expected train-*.parquet and test-*.parquet, or the files "
            f"or the archive of the binary version, there or in {name}/"
        )
    return recipe


def data_directory(config: DataConfig, name: str) -> Path:
    """The directory the user gave, else `$PFEDES_DATA`."""
    chosen = config.dir or os.environ.get("PFEDES_DATA", "")
    if not chosen:
        raise DataError(
            f"data set {name!r} needs its files: give their directory with --data-dir "
            "(or data.dir, or the environment variable PFEDES_DATA)"
        )
    return directory(chosen, "data directory")


def _digits() -> Recipe:
    def fill(images: Images, labels: Labels) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        # 0..16 becomes 0..255, each pixel a block of 4x4, the same in three channels.
        grey = np.round(digits.images * (255 / 16)).astype(np.uint8)
        images[:] = grey.repeat(4, axis=1).repeat(4, axis=2)[..., None]
        labels[:] = digits.target

    names = tuple(str(digit) for digit in range(10))
    return Recipe("digits", (), 1797, (32, 32, 3), names, 1797, fill)


def _synthetic(argument: str, progress: Progress) -> Recipe:
    settings = {"samples": 10_000, "classes": 10, "size": 32, "channels": 3}
    for part in filter(None, argument.split(",")):
        key, _, value = part.partition("=")
        if key not in settings:
            raise DataError(unknown("setting of 'synthetic'", key, settings))
        if not value.isdecimal() or len(value) > MOST_DIGITS or int(value) < 1:
            raise DataError(f"synthetic: {key} must be a positive whole number, found {value!r}")
        settings[key] = int(value)
    samples, classes, size, channels = settings.values()
    if samples * size * size * channels > LARGEST:
        raise DataError(f"synthetic: {argument!r} would take more than {LARGEST // 2**40} TiB")
    if samples < classes:
        raise DataError(f"synthetic: {samples} samples cannot cover {classes} classes")

    def fill(images: Images, labels: Labels) -> None:
        rng = np.random.default_rng(0)
        # A coarse random pattern per class, seen through noise: learnable, not trivial.
        coarse = rng.integers(64, 192, (classes, -(-size // 8), -(-size // 8), channels))
        patterns = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, :size, :size]
        labels[:] = rng.permutation(np.arange(samples) % classes)
        for start in range(0, samples, 8192):
            chunk = labels[start : start + 8192]
            noise = rng.integers(-64, 64, (len(chunk), size, size, channels))
            images[start : start + 8192] = patterns[chunk] + noise
            progress("generating synthetic data", min(start + 8192, samples), samples)

    names = tuple(f"class-{label}" for label in range(classes))
    shape = (size, size, channels)
    return Recipe("synthetic", tuple(settings.values()), samples, shape, names, samples, fill)


def stratified(labels: Labels, limit: int, rng: np.random.Generator) -> Labels:
    """`limit` row numbers, in order, in which every class has the share it has in the whole."""
    from pfedes.data.partition import apportion

    if not limit or limit >= len(labels):
        return np.arange(len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    quota = apportion(limit, counts)
    rows = [
        rng.permutation(np.flatnonzero(labels == label))[:take]
        for label, take in zip(classes, quota, strict=True)
    ]
    return np.sort(np.concatenate(rows))
