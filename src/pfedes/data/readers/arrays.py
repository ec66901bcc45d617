"""Reads users' files of numbers: rows of a table, signals, embeddings."""

import csv
import warnings
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pfedes.core.shapes import Shape
from pfedes.errors import DataError
from pfedes.files import reason

ENDINGS = (".npy", ".csv")


def open_numbers(path: Path, shape: Shape) -> NDArray[np.float32]:
    """Inputs (n, *shape): an array of numpy, or a table with a line for each, titled or not."""
    kinds = " or ".join(ENDINGS)
    try:
        table = path.suffix.lower() == ".csv"
        found = _table(path) if table else np.atleast_1d(np.load(path, allow_pickle=False))
    except Exception as error:  # readers raise exceptions of any kind
        raise DataError(f"{path} cannot be read as numbers ({kinds}): {reason(error)}") from None
    if found.dtype.kind not in "fiub":
        raise DataError(f"{path} cannot be read as numbers ({kinds}): it holds {found.dtype}")
    if not found.size:
        raise DataError(f"{path} holds no numbers")
    with np.errstate(over="ignore"):  # is found out below
        numbers = found.astype(np.float32)
    if numbers.shape == shape:
        numbers = numbers[None]
    if numbers.shape[1:] != shape:
        raise DataError(f"{path} holds {_by(numbers.shape)} numbers, expected n x {_by(shape)}")
    if not np.isfinite(numbers).all():
        raise DataError(f"{path} holds NaN or infinity")
    return numbers


def _table(path: Path) -> NDArray[np.float64]:
    text = path.read_text(encoding="utf-8-sig")  # spreadsheets write a mark before the first word
    first, _, _ = text.partition("\n")
    try:
        [float(word) for word in first.split(",")]
    except ValueError:
        titles = 1
    else:
        titles = 0
    with warnings.catch_warnings(action="ignore"):  # that there is nothing is said elsewhere
        try:
            return np.loadtxt(StringIO(text), delimiter=",", skiprows=titles, ndmin=2)
        except ValueError:
            _refuse_what_is_no_number(text, titles)
            raise


def _refuse_what_is_no_number(text: str, titles: int) -> None:
    """Names the first cell of a table that is missing or holds no number."""
    rows = list(csv.reader(StringIO(text)))
    names = rows[0] if titles else []
    for line, row in enumerate(rows[titles:], titles + 1):
        for place, word in enumerate(row):
            try:
                float(word)
            except ValueError:
                name = f" ({names[place]!r})" if place < len(names) else ""
                what = f"{word!r} is not a number" if word.strip() else "the value is missing"
                raise ValueError(f"line {line}, column {place + 1}{name}: {what}") from None


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
