"""CIFAR-10 and CIFAR-100 from parquet files in the layout of the Hugging Face hub."""

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from pfedes.data.dataset import Images, Labels, Progress, Recipe
from pfedes.data.readers.images import as_array
from pfedes.errors import DataError, said

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
            for blobs, numbers in _batches(path, file, LABEL_COLUMN[name]):
                for row, blob in enumerate(blobs, start):
                    images[row] = _decode(blob, path)
                stop = start + len(numbers)
                labels[start:stop] = numbers
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
        raise DataError(f"{path} is not a readable parquet file: {said(error)}") from None
    schema = file.schema_arrow
    for column in ("img", label):
        if column not in schema.names:
            found = ", ".join(schema.names)
            raise DataError(f"{path} has no column {column!r}; its columns are: {found}")
    _check_type(path, "img", schema.field("img").type, _holds_bytes, "a field 'bytes' of bytes")
    _check_type(path, label, schema.field(label).type, pa.types.is_integer, "whole numbers")
    return file


def _check_type(
    path: Path, column: str, found: Any, fits: Callable[[Any], bool], expected: str
) -> None:
    if not fits(found):
        raise DataError(f"{path}: column {column!r} holds {found}, expected {expected}")


def _holds_bytes(kind: Any) -> bool:
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return False
    inner = kind.field("bytes").type
    return bool(pa.types.is_binary(inner) or pa.types.is_large_binary(inner))


def _batches(
    path: Path, file: pq.ParquetFile, label: str
) -> Iterator[tuple[list[bytes | None], Labels]]:
    """Encoded images and labels, some rows at a time."""
    try:
        for batch in file.iter_batches(1000, columns=["img", label]):
            numbers = batch.column(label)
            if numbers.null_count:
                raise DataError(f"{path} holds {numbers.null_count} images without a label")
            yield batch.column("img").field("bytes").to_pylist(), numbers.to_numpy()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged: {said(error)}") from None


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
        names = tuple(features[label]["names"])
    except (KeyError, TypeError, ValueError):
        names = ()
    if len(names) != count or not all(isinstance(name, str) for name in names):
        return tuple(str(number) for number in range(count))
    return names


def _decode(blob: bytes | None, path: Path) -> Images:
    try:
        with Image.open(io.BytesIO(blob or b""), formats=FORMATS) as image:
            pixels = as_array(image, size=0)
    except Exception as error:  # decoders raise exceptions of any kind, even SyntaxError
        raise DataError(f"{path} holds an image that cannot be decoded: {said(error)}") from None
    if pixels.shape != SHAPE:
        raise DataError(f"{path} holds an image of {pixels.shape}, expected {SHAPE}")
    return pixels
