"""Turning a run into a page that opens offline."""

import io
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import pfedes
from pfedes.files import write_atomically
from pfedes.report.figures import accuracy_figure
from pfedes.report.formats import count, percent

if TYPE_CHECKING:
    from pfedes.run import Run


def write_report(run: "Run") -> None:
    """Writes `report.html` into the run directory."""
    write_atomically(run.directory / "report.html", render(run).encode())


def render(run: "Run") -> str:
    """The report as one self-contained page."""
    pages = Environment(
        loader=PackageLoader("pfedes.report", "."), autoescape=True, undefined=StrictUndefined
    )
    pages.filters |= {"percent": percent, "count": count}
    return pages.get_template("report.html").render(
        title=run.directory.resolve().name,
        version=pfedes.__version__,
        summary=run.summary,
        names=sorted(run.manifest.clients),
        finished=run.finished,
        planned=run.config.train.rounds,
        figure=_svg(accuracy_figure(run.rounds, run.manifest.initial_accuracy)),
        config=run.config.to_toml(),
    )


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg")
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
