"""Tables with named columns: their meaning, how they are read, and how they become inputs."""

import csv
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pfedes.data.preprocess import (
    CategoryColumn,
    Columns,
    MissingValueError,
    NumberColumn,
    Preprocess,
    canonical,
    is_missing,
    number,
    read_csv,
)
from pfedes.errors import DataError, said, unknown
from pfedes.files import at_home, reason
from pfedes.formatting import listed
from pfedes.section import Section

TABLES = ("csv:", "parquet:")
"""Prefixes of names of data that is a table."""


MOST_LEVELS = 100
"""Most levels of a column that are not listed: more are likely names, numbers or dates."""

MOST_NAMED = 4  # unlisted categories in one line

PICTURES = "npz:"
"""The prefix of names of data that is pictures in one file."""


class TableConfig(Section):
    """Which columns of a table mean what."""

    label: str = Field("", description="column that names the class of a row")
    site: str = Field(
        "", description="column that names the site of a row; '' = all rows are of one site"
    )
    only: str = Field("", description="site of which to take the rows; '' = all rows")
    group: str = Field(
        "", description="column (such as a patient) whose rows of equal value stay in one split"
    )
    numbers: tuple[str, ...] = Field((), description="feature columns that hold numbers")
    categories: Mapping[str, tuple[str, ...]] = Field(
        {}, description="feature columns with their levels; [] = those of the training rows"
    )
    ignore: tuple[str, ...] = Field((), description="columns to ignore")
    missing: Literal["refuse", "impute"] = Field(
        "refuse", description="refuse | impute (numbers: the training median; categories: unknown)"
    )
    missing_words: tuple[str, ...] = Field(
        ("?", "NA", "NaN", "nan"),
        description="words that mean a missing value, besides the empty one",
    )
    mean: Mapping[str, float] = Field(
        {},
        description="means by column that the sites agreed on; other columns take those of their "
        "training rows",
    )
    std: Mapping[str, float] = Field(
        {},
        description="standard deviations by column that the sites agreed on, as for table.mean",
    )

    @property
    def others(self) -> tuple[str, ...]:
        """Columns that are no features."""
        return (*filter(None, (self.label, self.site, self.group)), *self.ignore)


def is_table(source: str) -> bool:
    """Whether the data is a table: `csv:FILE` or `parquet:FILE`."""
    return source.startswith(TABLES)


def is_file(source: str) -> bool:
    """Whether the data is one file, a table or pictures."""
    return source.startswith((*TABLES, PICTURES))


def file_in(source: str, directory: Path) -> str:
    """The source with its file's whole path."""
    kind, _, file = source.partition(":")
    return f"{kind}:{(directory / at_home(file)).absolute()}"


def read_table(source: str) -> dict[str, list[str]]:
    """All columns of `csv:FILE` or `parquet:FILE` as words; '' where a value is missing."""
    kind, _, file = source.partition(":")
    path = Path(at_home(file))
    try:
        return read_csv(path) if kind == "csv" else _parquet(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}") from None
    except ValueError as error:  # also what Arrow raises
        raise DataError(f"{path} cannot be read as a table: {said(error)}") from None


def _parquet(path: Path) -> dict[str, list[str]]:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, ValueError):
        raise
    except Exception as error:  # Arrow has kinds of its own
        raise ValueError(said(error)) from None
    if not table.num_rows:
        raise ValueError("it holds no rows")
    columns = zip(table.column_names, table.columns, strict=True)
    return {
        name: ["" if value is None else str(value) for value in column.to_pylist()]
        for name, column in columns
    }


_last: ContextVar[dict[str, dict[str, list[str]]] | None] = ContextVar("last", default=None)


@contextmanager
def reading_once() -> Iterator[None]:
    """Reads a table once for all its sites that follow one another, and forgets it in the end."""
    token = _last.set({})
    try:
        yield
    finally:
        _last.reset(token)


def _read_or_known(source: str) -> dict[str, list[str]]:
    if (last := _last.get()) is None:
        return read_table(source)
    if source not in last:
        last.clear()
        last[source] = read_table(source)
    return last[source]


def columns_of(source: str, config: TableConfig) -> dict[str, list[str]]:
    """The columns of all rows; refuses columns that the configuration does not explain."""
    table = _read_or_known(source)
    path = source.partition(":")[2]
    if not config.label or not (config.numbers or config.categories):
        raise DataError("a table needs table.label, and table.numbers or table.categories")
    features = [*config.numbers, *config.categories]
    named = [*features, *config.others]
    if twice := sorted({name for name in named if named.count(name) > 1}):
        raise DataError(f"table: column {twice[0]!r} is given two meanings")
    for name in named:
        if name not in table:
            raise DataError(f"{path}: {unknown('column', name, table)}")
    if foreign := [name for name in table if name not in named]:
        raise DataError(
            f"{path}: nothing says what column {', '.join(map(repr, foreign))} is: name it in "
            "table.numbers, table.categories or table.ignore"
        )
    for key, given in (("mean", config.mean), ("std", config.std)):
        for name in given:
            if name not in config.numbers:
                raise DataError(f"table.{key}: {unknown('number column', name, config.numbers)}")
    if any(value <= 0 for value in config.std.values()):
        raise DataError("table.std must be greater than 0")
    return table


def rows_of(table: Columns, config: TableConfig) -> list[int]:
    """The rows of the site that is asked for; all if none is."""
    if not config.only:
        return list(range(len(next(iter(table.values())))))
    if not config.site:
        raise DataError(f"table.only = {config.only!r} needs table.site, the column of the sites")
    chosen = [row for row, site in enumerate(table[config.site]) if canonical(site) == config.only]
    if not chosen:
        sites = sorted(set(map(canonical, table[config.site])))
        raise DataError(f"column {config.site!r}: {unknown('site', config.only, sites)}")
    return chosen


def sites_of(table: Columns, config: TableConfig) -> list[str]:
    """The sites that a table names, sorted."""
    words = table[config.site]
    given = _each(words, range(len(words)), config.site, "site", config)
    return sorted(set(map(canonical, given)))


def levels_of(table: Columns, column: str, config: TableConfig) -> tuple[str, ...]:
    """The categories that a column names, sorted."""
    return _levels(column, table[column], config)


def labels_of(table: Columns, rows: Sequence[int], config: TableConfig) -> NDArray[np.str_]:
    """The class of each of these rows, by name."""
    words = _each(table[config.label], rows, config.label, "label", config)
    return np.array([canonical(word) for word in words])


def groups_of(table: Columns, rows: Sequence[int], config: TableConfig) -> list[str] | None:
    """The group of each of these rows, such as a patient; None without groups."""
    if not config.group:
        return None
    return _each(table[config.group], rows, config.group, "group", config)


def _each(
    words: Sequence[str], rows: Sequence[int], column: str, what: str, config: TableConfig
) -> list[str]:
    for row in rows:
        if is_missing(words[row], config.missing_words):
            raise DataError(f"row {row + 1}, column {column!r}: the {what} is missing")
    return [words[row].strip() for row in rows]


def prepared(
    table: Columns, rows: Sequence[int], train: Sequence[int], config: TableConfig
) -> tuple[Preprocess, NDArray[np.float32]]:
    """The preprocessing learned from training rows, and the inputs of all these rows."""
    preprocess = fitted(table, train, config)
    try:
        inputs, _ = preprocess.encode(table, rows)
    except MissingValueError as error:
        raise DataError(f"{error}: fill it in, or set table.missing = 'impute'") from None
    except ValueError as error:
        raise DataError(str(error)) from None
    return preprocess, inputs


def fitted(table: Columns, train: Sequence[int], config: TableConfig) -> Preprocess:
    """The preprocessing, learned from the training rows only or agreed on."""
    features = {*config.numbers, *config.categories}
    return Preprocess(
        numbers=tuple(_number(name, table[name], train, config) for name in config.numbers),
        categories=tuple(
            _category(name, [table[name][row] for row in train], levels, config)
            for name, levels in config.categories.items()
        ),
        order=tuple(name for name in table if name in features),
        others=config.others,
        missing=config.missing_words,
    )


def encoded(
    preprocess: Preprocess, path: Path, by_position: bool = False
) -> tuple[NDArray[np.float32], list[list[str]]]:
    """Inputs of a file's rows, and what is unusual about each; its columns are found by name.

    `by_position` is for a CSV file without a header: its columns are the features alone, in the
    order of the training file.
    """
    parquet = path.suffix.lower() == ".parquet"
    if by_position and parquet:
        raise DataError(f"{path} names its columns: leave out --columns-by-position")
    try:
        if parquet:
            table = _parquet(path)
        else:
            table = read_csv(path, preprocess.order if by_position else None)
        return preprocess.encode(table)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}") from None
    except ValueError as error:
        remedy = "" if by_position else _without_header(path, preprocess)
        raise DataError(f"{path}: {said(error)}{remedy}") from None


def _without_header(path: Path, preprocess: Preprocess) -> str:
    """The remedy if the first line holds none of the columns' names."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = next(csv.reader(file), [])
    except (OSError, ValueError, csv.Error):
        return ""
    if len(first) < 2 <= len(preprocess.order):
        return ""  # it is empty, or its columns are separated by something else
    known = {*preprocess.order, *preprocess.others}
    titled = any(word.strip() in known for word in first)
    return "" if titled else "; for a file without a header, --columns-by-position"


def _number(
    name: str, words: Sequence[str], train: Sequence[int], config: TableConfig
) -> NumberColumn:
    try:
        values = [
            number(words[row], name, row + 1)
            for row in train
            if not is_missing(words[row], config.missing_words)
        ]
    except ValueError as error:
        raise DataError(str(error)) from None
    mean = config.mean.get(name, float(np.mean(values)) if values else 0.0)
    std = config.std.get(name, float(np.std(values)) if values else 1.0)
    # A column without any value says nothing: it becomes 0 after standardisation.
    middle = statistics.median(values) if values else mean
    return NumberColumn(
        name=name,
        mean=mean,
        std=std if std > 0 else 1.0,
        fill=middle if config.missing == "impute" else None,
        low=min(values, default=None),
        high=max(values, default=None),
    )


def _category(
    name: str, words: Sequence[str], levels: Sequence[str], config: TableConfig
) -> CategoryColumn:
    present = {canonical(word) for word in words if not is_missing(word, config.missing_words)}
    known = tuple(map(canonical, levels)) or _levels(name, words, config)
    seen = tuple(level for level in known if level in present)
    return CategoryColumn(name, known, config.missing == "impute", seen)


def unlisted(table: Columns, rows: Sequence[int], config: TableConfig) -> tuple[str, ...]:
    """What rows hold besides the levels of a category: a misspelt level would be lost quietly."""
    found = []
    for name, levels in config.categories.items():
        words = (table[name][row] for row in rows)
        given = [canonical(word) for word in words if not is_missing(word, config.missing_words)]
        known = set(map(canonical, levels)) or set(given)
        if foreign := [word for word in given if word not in known]:
            shown = listed([repr(word) for word in sorted(set(foreign))], MOST_NAMED)
            found.append(
                f"column {name!r}: {len(foreign):,} of {len(rows):,} rows have none of its levels, "
                f"but {shown}: they count as unknown"
            )
    return tuple(found)


def _levels(name: str, words: Sequence[str], config: TableConfig) -> tuple[str, ...]:
    """All categories of a column whose levels are not listed."""
    present = {canonical(word) for word in words if not is_missing(word, config.missing_words)}
    if len(present) > MOST_LEVELS:
        raise DataError(
            f"column {name!r} has {len(present):,} different values, hardly categories: list its "
            "levels in table.categories, or name it in table.numbers or table.ignore"
        )
    return tuple(sorted(present))
