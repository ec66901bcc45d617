"""Several methods on equal terms: results, tables, figures."""

import base64
import csv
import html
import io
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pfedes.config import Config
from pfedes.files import publish, writing
from pfedes.formatting import percent
from pfedes.results.frame import frame_of
from pfedes.results.run import Run
from pfedes.results.table import Table
from pfedes.sweep.cells import Outcome
from pfedes.sweep.compare import (
    Result,
    difference_of,
    one_class_note,
    records_of,
    reference_of,
    results_of,
    table_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pfedes.report.compared_figures import Curve


class Comparison:
    """The result of several methods with the same clients, models and budget.

    Args:
        outcomes: The outcome of each run.
        methods: Names of the methods, in order.
        config: The configuration that the runs have in common.
        directory: Directory of the runs, into which `write` writes.
        against: Name of the method that the others are compared with; the best baseline if None.

    Attributes:
        outcomes: As given.
        directory: As given.
        targets: Accuracies for which the cost is reported.
        results: The results of each method.
        reference: The result that the others are compared with; None without one.
    """

    def __init__(
        self,
        outcomes: Sequence[Outcome],
        methods: Sequence[str],
        config: Config,
        directory: Path,
        against: str | None = None,
    ) -> None:
        self.outcomes = outcomes
        self.directory = directory
        self.targets = config.evaluate.targets
        self.results: list[Result] = results_of(outcomes, methods)
        self.reference = reference_of(self.results, against)

    @property
    def broken(self) -> list[str]:
        """The runs that failed, by name."""
        return [outcome.cell.name for outcome in self.outcomes if outcome.broken]

    @property
    def runs(self) -> dict[str, Sequence[Run]]:
        """The runs of each method that has a result, one for each seed."""
        return {result.method: result.runs for result in self.results if not result.reason}

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The results of all methods as numbers: the content of `compare.json`."""
        return records_of(self.results, self.reference)

    @cached_property
    def table(self) -> Table:
        """The table for people, the most accurate method first."""
        return table_of(self.results, self.targets, self.reference)

    def rows(self) -> list[dict[str, Any]]:
        """A row of plain numbers for each method: accuracies are fractions."""
        return [_flat(record, result.label) for record, result in self._by_result()]

    def frame(self) -> Any:
        """The rows as a pandas DataFrame; where pandas is not installed, as dictionaries."""
        return frame_of(self.rows())

    def figures(self) -> dict[str, "Figure"]:
        """Returns figures by name: accuracy over costs, the clients, paired differences."""
        # Imported where used: figures take a second to load.
        from pfedes.report.compared_figures import (
            compared_accuracy_figure,
            compared_clients_figure,
            compared_costs_figure,
            compared_flops_figure,
            differences_figure,
        )

        if not (curves := self._curves()):
            return {}
        found = {
            "accuracy-over-rounds": compared_accuracy_figure(curves),
            "accuracy-over-floats": compared_costs_figure(curves),
            "clients": compared_clients_figure(curves),
        }
        if (figure := compared_flops_figure(curves)) is not None:
            found["accuracy-over-flops"] = figure
        if self.reference is not None:
            others = [r for r in self._ranked() if r is not self.reference]
            gaps = {_label(r, others): difference_of(r, self.reference) for r in others}
            found["differences"] = differences_figure(gaps, self.reference.label)
        return found

    def write(self, *, figures: bool = False) -> list[Path]:
        """Writes tables and numbers into the directory of the runs; returns the files.

        Args:
            figures: Whether also to write figures as PNG, SVG and PDF.
        """
        files = {
            "compare.md": self.table.to_markdown().encode(),
            "compare.csv": self.table.to_csv().encode(),
            "compare.tex": self.table.to_latex().encode(),
            "compare.json": (json.dumps(self.records, indent=2) + "\n").encode(),
            "compare-numbers.csv": numbers_csv(self.rows()).encode(),
        }
        if figures:
            from pfedes.report.figure_files import in_every_format

            for name, figure in self.figures().items():
                drawn = in_every_format(name, figure)
                files |= {f"figures/{file}": content for file, content in drawn.items()}
        for name, content in files.items():
            path = self.directory / name
            with writing(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
            publish(path, content)
        return [self.directory / name for name in files]

    def __repr__(self) -> str:
        lines = [f"<Comparison {self.directory}: {self.headline}>"]
        for result in self._ranked():
            lines.append(f"  {result.label}: {percent(result.over_seeds('mean_accuracy')[0])}")
        lines += [f"  {r.label}: {r.reason}" for r in self.results if r.reason]
        lines += [f"  {note}" for note in map(one_class_note, self.results) if note]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The headline, the curves and the table as HTML, for notebooks."""
        parts = [f"<p><b>{html.escape(self.headline)}</b></p>"]
        if curves := self._curves():
            from pfedes.report.compared_figures import compared_accuracy_figure
            from pfedes.report.figure_files import drawn

            picture = base64.b64encode(drawn(compared_accuracy_figure(curves), "png")).decode()
            parts.append(
                '<img alt="mean accuracy over rounds, a line for each method" width="560" '
                f'src="data:image/png;base64,{picture}">'
            )
        return "".join([*parts, self.table.to_html()])

    @property
    def headline(self) -> str:
        """The comparison in one line."""
        ranked = self._ranked()
        if not ranked:
            return "no method has a result"
        best = percent(ranked[0].over_seeds("mean_accuracy")[0])
        first = [r.label for r in ranked if percent(r.over_seeds("mean_accuracy")[0]) == best]
        summary = ranked[0].summaries[0]
        seeds = len(ranked[0].summaries)
        over = f", mean of {seeds} seeds" if seeds > 1 else ""
        return (
            f"{len(self.results)} methods on {summary['dataset']}, {summary['clients']} clients: "
            f"{' and '.join(first)} {'is' if len(first) == 1 else 'are'} first with {best}{over}"
        )

    def _by_result(self) -> list[tuple[dict[str, Any], Result]]:
        return list(zip(self.records, self.results, strict=True))

    def _ranked(self) -> list[Result]:
        known = [result for result in self.results if not result.reason]
        return sorted(known, key=lambda r: -(r.over_seeds("mean_accuracy")[0] or 0))

    def _curves(self) -> "list[Curve]":
        from pfedes.report.compared_figures import curve_of
        from pfedes.report.figures import distinct_styles

        known = self._ranked()
        styles = distinct_styles([result.method for result in known])
        return [
            curve_of(_label(result, known), style, result.runs)
            for result, style in zip(known, styles, strict=True)
        ]


def _label(result: Result, others: Sequence[Result]) -> str:
    """Its label; where another one has the same, its whole name."""
    same = [other for other in others if other.label == result.label]
    return result.label if len(same) < 2 else result.method


def _flat(record: Mapping[str, Any], label: str) -> dict[str, Any]:
    """A record with one plain value in each column."""
    row = {"method": record["method"], "label": label}
    row |= {f"settings.{key}": value for key, value in record["settings"].items()}
    plain = {"method", "settings", "seeds", "targets", "difference"}
    row |= {key: value for key, value in record.items() if key not in plain}
    if "seeds" in record:
        row["seeds"] = len(record["seeds"])
    for target in record.get("targets", ()):
        goal = f"until_{target['accuracy']:g}"
        row |= {f"{goal}_{key}": target[key] for key in ("round", "floats", "flops")}
    row |= {f"difference_{key}": value for key, value in record.get("difference", {}).items()}
    return row


def numbers_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV with a column for every key of any row; what is not known is empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
