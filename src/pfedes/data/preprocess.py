"""How a row of a table becomes the numbers that a model takes.

Needs numpy alone: an exported model has a copy of this file and its preprocess.json beside it.
Written by pfedes; Apache-2.0.
"""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FAR = 0.5  # of the training range, beyond either end
Columns = Mapping[str, Sequence[str]]
"""The words of each column, by its name."""


class MissingValueError(ValueError):
    """There is no value where one is needed."""


def canonical(word: str) -> str:
    """A category's name without blanks around it; `1.0` is the same category as `1`."""
    word = word.strip()
    value = _float(word)
    # Beyond, a float no longer holds every whole number: two codes would become one.
    return str(int(value)) if abs(value) < 2**53 and value == int(value) else word


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers. `low` and `high` are None if no training row had a value."""

    name: str
    mean: float
    std: float
    fill: float | None  # for missing values; None = they are refused
    low: float | None
    high: float | None

    def remark(self, value: float) -> str:
        """Why a value should not be trusted; '' if nothing is wrong with it."""
        if self.low is None or self.high is None:
            return f"{self.name}: {value:g}, no value in training"
        room = FAR * (self.high - self.low)
        if self.low - room <= value <= self.high + room:
            return ""
        return f"{self.name}: {value:g} is far outside {self.low:g}..{self.high:g}"


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories: one 0 or 1 per level, and a last one for everything else."""

    name: str
    levels: tuple[str, ...]
    fill: bool  # whether a missing value counts as unknown; else it is refused
    seen: tuple[str, ...]  # levels that training rows had


@dataclass(frozen=True)
class Preprocess:
    """All columns with what was learned of them from the training rows."""

    numbers: tuple[NumberColumn, ...]
    categories: tuple[CategoryColumn, ...]
    order: tuple[str, ...]  # feature columns in the order of the training file
    others: tuple[str, ...]  # columns that may be there and are not looked at
    missing: tuple[str, ...]  # words that stand for no value

    @property
    def features(self) -> list[str]:
        """The names of the numbers that a row becomes."""
        levels = [
            f"{column.name}={level}"
            for column in self.categories
            for level in (*column.levels, "unknown")
        ]
        return [column.name for column in self.numbers] + levels

    @property
    def constant(self) -> list[str]:
        """Columns with at most one value in training."""
        numbers = [column.name for column in self.numbers if column.low == column.high]
        return numbers + [choice.name for choice in self.categories if len(choice.seen) < 2]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Preprocess":
        """What `to_json` gave. Raises an error of the kinds that go with a text of another form."""
        tree: dict[str, Any] = json.loads(text)
        found = cls(
            numbers=tuple(NumberColumn(**column) for column in tree["numbers"]),
            categories=tuple(
                CategoryColumn(
                    column["name"],
                    tuple(column["levels"]),
                    column["fill"],
                    tuple(column["seen"]),
                )
                for column in tree["categories"]
            ),
            order=tuple(tree["order"]),
            others=tuple(tree["others"]),
            missing=tuple(tree["missing"]),
        )
        found._check()
        return found

    def _check(self) -> None:
        """Raises ValueError for what no table gives: the file may come from anybody."""
        columns = [column.name for column in self.numbers]
        columns += [column.name for column in self.categories]
        levels = [word for column in self.categories for word in (*column.levels, *column.seen)]
        words = [*columns, *levels, *self.order, *self.others, *self.missing]
        if not all(isinstance(word, str) for word in words):
            raise ValueError("a name or a category is not text")
        if sorted(columns) != sorted(self.order) or len(set(columns)) < len(columns):
            raise ValueError("its columns are not those of its order, each once")
        for column in self.numbers:
            known = [v for v in (column.fill, column.low, column.high) if v is not None]
            if not all(map(math.isfinite, (column.mean, column.std, *known))) or column.std <= 0:
                raise ValueError(f"the figures of column {column.name!r} are no usable numbers")

    def matched(self, table: Columns) -> None:
        """Raises ValueError if feature columns are missing or there are columns nobody knows."""
        if absent := [name for name in self.order if name not in table]:
            raise ValueError(f"column {', '.join(map(repr, absent))} is missing")
        known = {*self.order, *self.others}
        if foreign := [name for name in table if name not in known]:
            raise ValueError(
                f"column {', '.join(map(repr, foreign))} is unknown; the model takes "
                f"{', '.join(self.order)}"
            )

    def encode(
        self, table: Columns, rows: Sequence[int] | None = None
    ) -> tuple[NDArray[np.float32], list[list[str]]]:
        """Inputs (n, features), and for each row what is unusual about it; of some rows or all.

        Raises ValueError, which names row and column, for what cannot be taken.
        """
        self.matched(table)
        chosen = range(len(table[self.order[0]])) if rows is None else rows
        found = np.zeros((len(chosen), len(self.features)), np.float64)
        remarks: list[list[str]] = [[] for _ in chosen]
        for place, column in enumerate(self.numbers):
            for row, given in enumerate(chosen):
                value = self._value(column, table[column.name][given], given + 1)
                if value is None:
                    remarks[row].append(f"{column.name}: missing")
                    value = column.fill if column.fill is not None else column.mean
                elif remark := column.remark(value):
                    remarks[row].append(remark)
                found[row, place] = (value - column.mean) / column.std
        start = len(self.numbers)
        for choice in self.categories:
            for row, given in enumerate(chosen):
                level, remark = self._level(choice, table[choice.name][given], given + 1)
                found[row, start + level] = 1.0
                if remark:
                    remarks[row].append(remark)
            start += len(choice.levels) + 1
        with np.errstate(over="ignore"):
            inputs = found.astype(np.float32)
        if not np.isfinite(inputs).all():
            row = int(np.flatnonzero(~np.isfinite(inputs).all(axis=1))[0])
            raise ValueError(f"row {chosen[row] + 1}: a number is too large")
        return inputs, remarks

    def raw(self, table: Columns) -> NDArray[np.float64]:
        """What model.onnx takes: the numbers as they are, then the place of each level.

        NaN is a missing number; the place after the last level is everything unknown. Raises as
        `encode` does.
        """
        self.matched(table)
        columns: list[list[float]] = []
        for column in self.numbers:
            values = [self._value(column, w, n) for n, w in enumerate(table[column.name], 1)]
            columns.append([math.nan if value is None else value for value in values])
        for choice in self.categories:
            words = enumerate(table[choice.name], 1)
            columns.append([float(self._level(choice, word, row)[0]) for row, word in words])
        return np.array(columns, np.float64).T

    def _value(self, column: NumberColumn, word: str, row: int) -> float | None:
        if is_missing(word, self.missing):
            if column.fill is None:
                raise MissingValueError(f"row {row}, column {column.name!r}: the value is missing")
            return None
        return number(word, column.name, row)

    def _level(self, column: CategoryColumn, word: str, row: int) -> tuple[int, str]:
        if is_missing(word, self.missing):
            if not column.fill:
                raise MissingValueError(f"row {row}, column {column.name!r}: the value is missing")
            return len(column.levels), f"{column.name}: missing"
        level = canonical(word)
        if level not in column.levels:
            return len(column.levels), f"{column.name}: {level!r} is not a known category"
        remark = "" if level in column.seen else f"{column.name}: {level!r} never seen in training"
        return column.levels.index(level), remark


def is_missing(word: str, words: Sequence[str]) -> bool:
    return not word.strip() or word.strip() in words


def number(word: str, column: str, row: int) -> float:
    """A finite number, or a ValueError that names its place."""
    value = _float(word)
    if not math.isfinite(value):
        remedy = "; write 1234.5, without commas" if "," in word else ""
        raise ValueError(f"row {row}, column {column!r}: {word.strip()!r} is not a number{remedy}")
    return value


def _float(word: str) -> float:
    """NaN for a word that is not a number; Python itself would take `3_7` for 37."""
    try:
        return math.nan if "_" in word else float(word)
    except ValueError:
        return math.nan


def read_csv(path: Path | str, names: Sequence[str] | None = None) -> dict[str, list[str]]:
    """A CSV file by columns. `names` are those of a file without a header.

    Raises ValueError for lines of different lengths and for a header that names a column twice.
    """
    lines: list[tuple[int, list[str]]] = []
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            lines += ((n, row) for n, row in enumerate(csv.reader(file, strict=True), 1) if row)
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8: save it as 'CSV UTF-8'") from None
    except csv.Error as error:
        raise ValueError(f"quotation marks or commas are out of place: {error}") from None
    if not lines:
        raise ValueError("it is empty")
    if names is None:
        (_, header), *lines = lines
        if other := [mark for mark in ";\t|" if len(header) == 1 and mark in header[0]]:
            raise ValueError(f"its columns are separated by {other[0]!r}: save it with commas")
        header = [name.strip() for name in header]
    else:
        header = list(names)
        titles = {word.strip() for word in lines[0][1]} & set(header)
        if titles:
            raise ValueError(f"its first line names columns ({', '.join(sorted(titles))})")
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise ValueError(f"column {twice[0]!r} is there twice")
    for line, row in lines:
        if len(row) != len(header):
            raise ValueError(f"line {line} has {len(row)} values, expected {len(header)}")
    if not lines:
        raise ValueError("it holds no rows")
    return {name: [row[place] for _, row in lines] for place, name in enumerate(header)}
