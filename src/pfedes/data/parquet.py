"""CIFAR-10 and CIFAR-100 from parquet files in the layout of the Hugging Face hub."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from pfedes.data.dataset import Images, Labels, Progress, Recipe
from pfedes.data.pictures import as_array
from pfedes.errors import DataError

LABEL_COLUMN = {"cifar10": "label", "cifar100": "fine_label"}
CLASSES = {"cifar10": 10, "cifar100": 100}
SHAPE = (32, 32, 3)
FORMATS = ("PNG", "WEBP", "JPEG")  # naming them spares Pillow trying all the others first


def parquet_recipe(name: str, directory: Path, progress: Progress) -> Recipe | None:
    """How to decode the files found in (or just below) a directory; None if there are none."""
    train, test = _find(name, directory)
    if not train:
        return None
    opened = {path: _open(path, LABEL_COLUMN[name]) for path in (*train, *test)}
    rows = {path: file.metadata.num_rows for path, file in opened.items()}
    total = sum(rows.values())
    if not total:
        raise DataError(f"{train[0]} holds no rows")

    def fill(images: Images, labels: Labels) -> None:
        start = 0
        for path, file in opened.items():
            for batch in file.iter_batches(1000, columns=["img", LABEL_COLUMN[name]]):
                for row, blob in enumerate(batch.column("img").field("bytes").to_pylist(), start):
                    images[row] = _decode(blob, path)
                stop = start + batch.num_rows
                labels[start:stop] = batch.column(LABEL_COLUMN[name]).to_numpy()
                start = stop
                progress(f"decoding {name} (once)", start, total)

    return Recipe(
        name=name,
        identity=[_fingerprint(path) for path in opened],
        rows=total,
        shape=SHAPE,
        class_names=_class_names(opened[train[0]], LABEL_COLUMN[name], CLASSES[name]),
        official_train=sum(rows[path] for path in train),
        fill=fill,
    )


def _find(name: str, directory: Path) -> tuple[list[Path], list[Path]]:
    """The training and test files, from the data set's own directory or its parent."""
    for place in ("", name, "plain_text", f"{name}/plain_text", f"{name}/{name}", "data"):
        train = sorted((directory / place).glob("train-*.parquet"))
        test = sorted((directory / place).glob("test-*.parquet"))
        if train and test:
            return train, test
        if train or test:
            kind = "test" if train else "train"
            raise DataError(f"{directory / place} has no {kind}-*.parquet")
    return [], []


def _open(path: Path, label: str) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is not a readable parquet file: {reason}") from None
    columns = file.schema_arrow.names
    for column in ("img", label):
        if column not in columns:
            found = ", ".join(columns)
            raise DataError(f"{path} has no column {column!r}; its columns are: {found}")
    return file


def _fingerprint(path: Path) -> list[Any]:
    """Size and both ends of a file: the footer holds the offsets and sizes of every page."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(65536)
        file.seek(max(0, size - 65536))
        ends = hashlib.sha256(head + file.read()).hexdigest()
    return [size, ends]


def _class_names(file: pq.ParquetFile, label: str, count: int) -> tuple[str, ...]:
    """The names that the Hugging Face schema carries, else the numbers."""
    try:
        features = json.loads(file.schema_arrow.metadata[b"huggingface"])["info"]["features"]
        names: Sequence[str] = features[label]["names"]
    except (KeyError, TypeError, ValueError):
        names = [str(number) for number in range(count)]
    return tuple(names)


def _decode(blob: bytes | None, path: Path) -> Images:
    try:
        with Image.open(io.BytesIO(blob or b""), formats=FORMATS) as image:
            pixels = as_array(image, size=0)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} holds an image that cannot be decoded: {error}") from None
    if pixels.shape != SHAPE:
        raise DataError(f"{path} holds an image of {pixels.shape}, expected {SHAPE}")
    return pixels
