"""A table of text, in the formats people paste it into."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

LATEX = {"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "±": r"$\pm$", "$": r"\$"}


@dataclass(frozen=True)
class Table:
    """Columns, rows, and notes below them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=list)

    def to_markdown(self) -> str:
        rule = ["---"] + ["---:"] * (len(self.columns) - 1)
        lines = ["| " + " | ".join(row) + " |" for row in (self.columns, rule, *self.rows)]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"

    def to_csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def to_latex(self) -> str:
        """With the rules of the booktabs package."""
        lines = [rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}", r"\toprule"]
        lines += [_latex(self.columns), r"\midrule"]
        lines += [_latex(row) for row in self.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        return "\n".join([*lines, *(f"% {note}" for note in self.notes)]) + "\n"


def _latex(cells: Sequence[str]) -> str:
    escaped = ["".join(LATEX.get(letter, letter) for letter in cell) for cell in cells]
    return " & ".join(escaped) + r" \\"
