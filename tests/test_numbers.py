"""Files of numbers come out as they are; those that are none get one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfedes import DataError
from pfedes.data.readers.arrays import open_numbers


@pytest.mark.parametrize(
    "text",
    [
        b"1,2,3\n4,5,6\n",
        b"age,height,pulse\n1,2,3\n4,5,6\n",
        b"\xef\xbb\xbf1,2,3\n4,5,6\n",  # as spreadsheets begin a file
        b"\xef\xbb\xbfage,height,pulse\r\n1,2,3\r\n4,5,6\r\n",
    ],
)
def test_tables(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(text)
    assert open_numbers(tmp_path / "x.csv", (3,)).tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((0, 3)), "holds no numbers"),
        (np.ones((2, 3)) * 1j, "cannot be read as numbers .* holds complex128"),
        (np.array([["a"] * 3]), "cannot be read as numbers .* holds <U1"),
        (np.array([["2024-01-01"] * 3], "datetime64[D]"), "cannot be read as numbers .* datetime"),
        (np.full((2, 3), 1e300), "holds NaN or infinity"),
        (np.array(1.0), "holds 1 numbers, expected n x 3"),
        (np.ones((2, 4)), "holds 2 x 4 numbers, expected n x 3"),
    ],
)
def test_unusable_arrays_are_refused(array: Any, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataError, match=rf"x.npy {message}"):
        open_numbers(tmp_path / "x.npy", (3,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no numbers"),
        ("a,b,c\n", "holds no numbers"),
        ("1,2,3\n4,5\n", "cannot be read as numbers .* number of columns changed"),
        ("a,b,c\n1,,3\n", r"cannot be read .*: line 2, column 2 \('b'\): the value is missing"),
        ("1,2,3\n4,5,x\n", "cannot be read .*: line 2, column 3: 'x' is not a number"),
        ("1,nan,3\n", "holds NaN or infinity"),
    ],
)
def test_unusable_tables_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=rf"x.csv {message}"):
        open_numbers(tmp_path / "x.csv", (3,))
