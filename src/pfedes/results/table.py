"""A table of text, in the formats people paste it into."""

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

LATEX = {
    **{letter: rf"\{letter}" for letter in "%_&#${}"},
    **{letter: f"${letter}$" for letter in "<>|"},
    "^": r"\^{}",
    "~": r"\~{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
}
SENTENCE = 40  # letters, from which on a cell of a LaTeX table is broken into lines


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

    def to_html(self) -> str:
        """A plain table for a notebook; all text is escaped."""
        sides = ["right" if number else "left" for number in self.numeric()]

        def row(tag: str, cells: Sequence[str]) -> str:
            inner = (
                f'<{tag} style="text-align:{side}">{html.escape(cell)}</{tag}>'
                for side, cell in zip(sides, cells, strict=True)
            )
            return f"<tr>{''.join(inner)}</tr>"

        rows = "".join(row("td", cells) for cells in self.rows)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<table>{row('th', self.columns)}{rows}</table>{notes}"

    def to_latex(self) -> str:
        """With the rules of the booktabs package; "N=10: ours" stands below a common "N=10"."""
        lines = [rf"\begin{{tabular}}{{{self._latex_layout()}}}", r"\toprule"]
        headings = [heading.rpartition(": ") for heading in self.columns]
        if any(group for group, *_ in headings):
            lines += _latex_groups([group for group, *_ in headings])
        lines += [_latex_row([_latex(name) for *_, name in headings]), r"\midrule"]
        for row in self.rows:
            cells = zip(row, self.numeric(), strict=True)
            lines.append(_latex_row([_latex(cell, number=number) for cell, number in cells]))
        lines += [r"\bottomrule", r"\end{tabular}"]
        if self.notes:
            lines += ["", r"\smallskip", r"\begin{minipage}{\linewidth}\footnotesize"]
            lines += ["\n\n".join(map(_latex, self.notes)), r"\end{minipage}"]
        return "\n".join(lines) + "\n"

    def _latex_layout(self) -> str:
        """Columns of sentences share the room that the others leave, the longer the more."""
        lengths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        told = sum(length for length in lengths if length > SENTENCE)
        room = max(0.25, 0.85 - 0.1 * sum(length <= SENTENCE for length in lengths))
        if not self.rows:
            return "l" * len(self.columns)
        layout = [
            rf"p{{{max(0.2, room * length / told):.2f}\linewidth}}"
            if length > SENTENCE
            else "r"
            if number
            else "l"
            for length, number in zip(lengths, self.numeric(), strict=True)
        ]
        return "".join(layout)


def _latex(text: str, *, number: bool = False) -> str:
    escaped = "".join(LATEX.get(letter, letter) for letter in text)
    return f"$-${escaped[1:]}" if number and len(text) > 1 and text[0] == "-" else escaped


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_groups(groups: Sequence[str]) -> list[str]:
    """A line of headings over several columns each, and rules below them."""
    cells, rules, place = [], [], 1
    for group, columns in groupby(groups):
        width = len(list(columns))
        cells.append(
            rf"\multicolumn{{{width}}}{{c}}{{{_latex(group)}}}" if group else "&" * (width - 1)
        )
        if group:
            rules.append(rf"\cmidrule(lr){{{place}-{place + width - 1}}}")
        place += width
    return [_latex_row(cells), " ".join(rules)]
