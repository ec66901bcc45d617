"""Figures as files: for screens, for pages, for print."""

import io
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from pfedes.report.figures import STYLE

# Without a date in it, the same figure is the same file.
DATELESS: dict[str, dict[str, Any]] = {
    "png": {},
    "svg": {"metadata": {"Date": None}},
    "pdf": {"metadata": {"CreationDate": None}},
}


def drawn(figure: Figure, kind: str) -> bytes:
    """The bytes of a file of that kind."""
    target = io.BytesIO()
    with mpl.rc_context(STYLE):  # some of it counts only now
        figure.savefig(target, format=kind, **DATELESS[kind])
    return target.getvalue()


def in_every_format(name: str, figure: Figure) -> dict[str, bytes]:
    """The figure's files by name."""
    return {f"{name}.{kind}": drawn(figure, kind) for kind in DATELESS}
