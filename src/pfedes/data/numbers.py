"""Numbers of the user's own in files: rows of a table, signals, embeddings."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pfedes.errors import DataError
from pfedes.shape import Shape

ENDINGS = (".npy", ".csv")


def open_numbers(path: Path, shape: Shape) -> NDArray[np.float32]:
    """Inputs (n, *shape): an array of numpy, or a table with a line for each, titled or not."""
    try:
        found = _table(path) if path.suffix.lower() == ".csv" else np.load(path, allow_pickle=False)
        numbers = np.asarray(found, np.float32)
    except Exception as error:  # readers raise whatever they stumble over
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        kinds = " or ".join(ENDINGS)
        raise DataError(f"{path} cannot be read as numbers ({kinds}): {reason}") from None
    if numbers.shape == shape:
        numbers = numbers[None]
    if numbers.shape[1:] != shape:
        raise DataError(f"{path} holds {_by(numbers.shape)} numbers, expected n x {_by(shape)}")
    if not np.isfinite(numbers).all():
        raise DataError(f"{path} holds NaN or infinity")
    return numbers


def _table(path: Path) -> NDArray[np.float64]:
    with path.open(encoding="utf-8") as lines:
        first = lines.readline()
    try:
        [float(word) for word in first.split(",")]
    except ValueError:
        titles = 1
    else:
        titles = 0
    return np.loadtxt(path, delimiter=",", skiprows=titles, ndmin=2)


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
