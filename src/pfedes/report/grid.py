"""Tables of a page: the text of their cells, and what they sort by."""

from collections.abc import Sequence
from dataclasses import dataclass

from pfedes.formatting import WITHHELD, count, percent

MOST_ROWS = 50
"""A page stays small and quick however many clients, rounds or failures there are."""


@dataclass(frozen=True)
class GridCell:
    """Text, the number it sorts by if it is one, and where it leads to, if anywhere."""

    text: str
    value: float | None = None
    link: str = ""


@dataclass(frozen=True)
class Grid:
    """Rows under named columns; the first cell of a row names it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[GridCell]]
    note: str = ""
    ascending: int | None = None  # the column it comes sorted by
    sortable: bool = True

    def is_numeric(self, column: int) -> bool:
        """Whether a column is set flush right: numbers, or the want of them."""
        cells = [row[column] for row in self.rows]
        return all(cell.value is not None or cell.text in ("-", WITHHELD) for cell in cells)


def text(words: str) -> GridCell:
    return GridCell(words)


def number(value: float | None) -> GridCell:
    return GridCell(count(value), value)


def flops(value: float | None) -> GridCell:
    """A number; participants of a federation keep it to themselves."""
    return number(value) if value is not None else GridCell(WITHHELD)


def share(value: float | None) -> GridCell:
    return GridCell(percent(value), value)


def shortened(total: int, what: str, where: str) -> str:
    """The note below a table that does not show everything."""
    if total <= MOST_ROWS:
        return ""
    return f"{MOST_ROWS} of {total:,} {what}; all are in {where}."
