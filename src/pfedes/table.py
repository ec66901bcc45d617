"""A table of text, in the formats people paste it into."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

LATEX = {
    **{letter: rf"\{letter}" for letter in "%_&#${}"},
    **{letter: f"${letter}$" for letter in "<>|"},
    "^": r"\^{}",
    "~": r"\~{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
}


@dataclass(frozen=True)
class Table:
    """Columns, rows, and notes below them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=list)

    def numeric(self) -> list[bool]:
        """Which columns hold numbers: those are set flush right."""
        return [
            all(not cell or cell[0] in "+-0123456789" for cell in column)
            for column in zip(*self.rows, strict=True)
        ] or [False] * len(self.columns)

    def to_markdown(self) -> str:
        rows = [[cell.replace("|", r"\|") for cell in row] for row in (self.columns, *self.rows)]
        rows.insert(1, ["---:" if number else "---" for number in self.numeric()])
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)]) + "\n"

    def to_csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()

    def to_latex(self) -> str:
        """With the rules of the booktabs package."""
        layout = "".join("r" if number else "l" for number in self.numeric())
        lines = [rf"\begin{{tabular}}{{{layout}}}", r"\toprule"]
        lines += [_latex(self.columns), r"\midrule"]
        lines += [_latex(row) for row in self.rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
        return "\n".join([*lines, *(f"% {note}" for note in self.notes)]) + "\n"


def _latex(cells: Sequence[str]) -> str:
    escaped = ["".join(LATEX.get(letter, letter) for letter in cell) for cell in cells]
    return " & ".join(escaped) + r" \\"
