"""An exhibit as files: tables to paste, figures to print, and one page that shows them all."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from pfedes.files import write_atomically
from pfedes.paper.experiment import Exhibit, Experiment
from pfedes.paper.scale import Scale
from pfedes.report.figures import STYLE

# Without a date in it, the same figure is the same file.
DATELESS: dict[str, dict[str, Any]] = {
    "png": {},
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}


def write(exhibit: Exhibit, experiment: Experiment, scale: Scale, directory: Path) -> list[Path]:
    """Writes everything below a directory and says what was written, the page first."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {"README.md": page(exhibit, experiment, scale).encode()}
    for name, shown in exhibit.tables.items():
        # A table is pasted alone: what it must not be read without goes with it.
        table = replace(shown, notes=[*shown.notes, *exhibit.notes, *_caveats(scale)])
        files[f"{name}.md"] = table.to_markdown().encode()
        files[f"{name}.csv"] = table.to_csv().encode()
        files[f"{name}.tex"] = table.to_latex().encode()
    for name, figure in exhibit.figures.items():
        files |= {f"{name}.{kind}": drawn(figure, kind) for kind in DATELESS}
    for name, content in files.items():
        write_atomically(directory / name, content)
    return [directory / name for name in files]


def drawn(figure: Figure, kind: str) -> bytes:
    target = io.BytesIO()
    with mpl.rc_context(STYLE):  # some of it counts only now
        figure.savefig(target, format=kind, **DATELESS[kind])
    return target.getvalue()


def page(exhibit: Exhibit, experiment: Experiment, scale: Scale) -> str:
    """All of it as Markdown."""
    return "\n\n".join(_parts(exhibit, experiment, scale)) + "\n"


def _caveats(scale: Scale) -> list[str]:
    return [f"Scale {scale.name}. {text}" for text in scale.deviations]


def _parts(exhibit: Exhibit, experiment: Experiment, scale: Scale) -> Iterator[str]:
    yield f"# {experiment.title}"
    yield f"{experiment.source}. Scale `{scale.name}`: {scale.about}."
    for name in exhibit.figures:
        yield f"![{experiment.title}]({name}.png)"
    for name, table in exhibit.tables.items():
        yield f"## {name}\n\n{table.to_markdown().rstrip()}"
    if exhibit.notes:
        yield "## Notes\n\n" + "\n".join(f"- {note}" for note in exhibit.notes)
    if scale.deviations:
        yield "## What differs from the paper\n\n" + "\n".join(
            f"- {text}" for text in scale.deviations
        )
