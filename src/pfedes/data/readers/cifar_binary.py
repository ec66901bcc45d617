"""CIFAR-10 and CIFAR-100 from the official binary version, unpacked or as the archive."""

import tarfile
import zlib
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from pfedes.data.dataset import Images, Labels, Recipe
from pfedes.errors import DataError

PIXELS = 3 * 32 * 32
ARCHIVE = {"cifar10": "cifar-10-binary.tar.gz", "cifar100": "cifar-100-binary.tar.gz"}
FOLDER = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}
TRAIN = {"cifar10": [f"data_batch_{n}.bin" for n in range(1, 6)], "cifar100": ["train.bin"]}
TEST = {"cifar10": "test_batch.bin", "cifar100": "test.bin"}
NAMES = {"cifar10": "batches.meta.txt", "cifar100": "fine_label_names.txt"}
LABELS = {"cifar10": 1, "cifar100": 2}  # bytes before the pixels; the last of them is the label
CLASSES = {"cifar10": 10, "cifar100": 100}

Read = Callable[[str], bytes]


def binary_recipe(name: str, directory: Path) -> Recipe | None:
    """How to read the binary files found in (or just below) a directory; None if there are none."""
    found = _reader(name, directory)
    if found is None:
        return None
    place, read = found
    files = [*TRAIN[name], TEST[name]]
    record = LABELS[name] + PIXELS
    parts = []
    for file in files:
        data = np.frombuffer(read(file), np.uint8)
        if not len(data) or len(data) % record:
            raise DataError(f"{place}: {file} has {len(data)} bytes, no multiple of {record}")
        parts.append(data.reshape(-1, record))
    records = np.concatenate(parts)

    def fill(images: Images, labels: Labels) -> None:
        labels[:] = records[:, LABELS[name] - 1]
        planes = records[:, LABELS[name] :].reshape(-1, 3, 32, 32)
        images[:] = planes.transpose(0, 2, 3, 1)

    try:
        names = read(NAMES[name]).decode().split()
    except UnicodeDecodeError:
        raise DataError(f"{place}: {NAMES[name]} is not text") from None
    if len(names) != CLASSES[name]:
        raise DataError(f"{place}: {NAMES[name]} names {len(names)} classes")
    return Recipe(
        name=name,
        identity=["binary", sha256(records.data).hexdigest()],
        rows=len(records),
        shape=(32, 32, 3),
        class_names=tuple(names),
        official_train=len(records) - len(parts[-1]),
        fill=fill,
    )


def _reader(name: str, directory: Path) -> tuple[Path, Read] | None:
    for place in (directory, directory / FOLDER[name], directory / name,
                  directory / name / FOLDER[name]):  # fmt: skip
        if (place / TEST[name]).is_file():
            return place, partial(_from_folder, place)
        if (archive := place / ARCHIVE[name]).is_file():
            return archive, partial(_from_archive, archive, name)
    return None


def _from_folder(place: Path, file: str) -> bytes:
    try:
        return (place / file).read_bytes()
    except OSError as error:
        raise DataError(f"{place / file} cannot be read: {error.strerror}") from None


def _from_archive(archive: Path, name: str, file: str) -> bytes:
    """A file's bytes, taken from the archive without unpacking it onto the disk."""
    try:
        with tarfile.open(archive) as tar:
            member = tar.extractfile(f"{FOLDER[name]}/{file}")
            if member is None:
                raise KeyError(file)
            return member.read()
    except (OSError, EOFError, KeyError, tarfile.TarError, zlib.error) as error:
        raise DataError(f"{archive}: {file} cannot be read: {error}") from None
