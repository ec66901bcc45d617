"""What the panels of several figures have in common."""

from collections.abc import Iterable

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pfedes.reproduction.experiment import NOT_RUN


def leave_empty(axes: Axes) -> None:
    """A panel without runs says so, and has no scale."""
    axes.text(0.5, 0.5, NOT_RUN, transform=axes.transAxes, ha="center", va="center", color="0.4")
    axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False, which="both")
    axes.grid(False)


def legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """One legend for all panels, of every line that is in any of them."""
    handles: dict[str, Artist] = {}
    for axes in panels:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=min(7, len(handles)),
            fontsize=8,
            frameon=False,
            handlelength=2.6,
            columnspacing=1.2,
        )
