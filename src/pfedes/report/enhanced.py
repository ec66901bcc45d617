"""What the shared extractor makes of images: some originals above their enhanced versions."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pfedes.core.payload import State
from pfedes.errors import DamageError
from pfedes.methods.pfedes import PFedES
from pfedes.report.figures import STYLE

if TYPE_CHECKING:
    from pfedes.population.simulation import Simulation
    from pfedes.results.run import Run

Pictures = NDArray[np.float32]
"""Images (n, height, width, 3), or (n, height, width) where they are grey; values in 0..1."""

SCALING = "each enhanced image is stretched from its own least to its own greatest value"


@dataclass(frozen=True)
class EnhancedPairs:
    """Images of different classes, and what the extractor makes of each."""

    round: int  # whose extractor it is
    classes: tuple[str, ...]
    originals: Pictures
    enhanced: Pictures  # scaled for display as SCALING says
    zeros: float  # the share of exact zeros in the extractor's output


def enhanced_pairs(
    run: "Run", count: int = 5, simulation: "Simulation | None" = None
) -> EnhancedPairs | None:
    """A few images of the data set through the server's present extractor.

    None where no extractor is shared, with other methods or where each client has its own; and
    where the inputs are no images.
    """
    simulation = simulation or run.simulation
    method, population = simulation.method, simulation.population
    if not (isinstance(method, PFedES) and method.config.sharing == "global"):
        return None
    if (pictures := population.pictures(count)) is None:
        return None
    pixels, labels = pictures
    number, state = _present_state(run)
    shape = (population.channels, *pixels.shape[1:3])
    extractor = method.extractors.initial(shape, simulation.context(number))
    try:
        extractor.load_state_dict(state.tensors)
    except RuntimeError:
        raise DamageError(
            f"{run.directory}: what the server holds is not the extractor of config.toml"
        ) from None
    with torch.no_grad():
        made = extractor.eval()(population.normaliser(torch.from_numpy(pixels)))
    output = made.permute(0, 2, 3, 1).numpy()
    return EnhancedPairs(
        round=number,
        classes=tuple(population.class_names[label] for label in labels),
        originals=_displayable((pixels / 255).astype(np.float32)),
        enhanced=_displayable(_stretched(output)),
        zeros=float((output == 0).mean()),
    )


def enhanced_figure(pairs: EnhancedPairs) -> Figure:
    """Originals in the upper row, enhanced versions below them."""
    count, height, width = pairs.originals.shape[:3]
    gap = max(1, height // 12)
    rows = [_side_by_side(pictures, gap) for pictures in (pairs.originals, pairs.enhanced)]
    mosaic = np.concatenate([rows[0], np.zeros_like(rows[0][:gap]), rows[1]])
    names = [name if len(name) <= 12 else f"{name[:11]}…" for name in pairs.classes]
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=(0.8 + 1.0 * count, 0.4 + 2.0 * height / width))
        axes = figure.add_subplot()
        axes.imshow(mosaic, interpolation="none")
        centres = [(width + gap) * number + width / 2 - 0.5 for number in range(count)]
        axes.set_xticks(centres, names, parse_math=False)
        axes.set_yticks([height / 2, height * 1.5 + gap], ["original", "enhanced"])
        axes.tick_params(length=0, labeltop=True, labelbottom=False)
        axes.spines[:].set_visible(False)
    return figure


def _side_by_side(pictures: Pictures, gap: int) -> Pictures:
    """One picture, red, green, blue and opaque; what is between them is transparent."""
    colours = pictures if pictures.ndim == 4 else np.stack([pictures] * 3, axis=-1)
    opaque = np.concatenate([colours, np.ones_like(colours[..., :1])], axis=-1)
    apart = np.pad(opaque, ((0, 0), (0, 0), (0, gap), (0, 0)))
    return np.concatenate(list(apart), axis=1)[:, :-gap]


def _present_state(run: "Run") -> tuple[int, State]:
    """The present state of the server; a run that continues may have removed the earlier one."""
    try:
        return run.manifest.round, run.store.server_state(run.manifest)
    except DamageError:
        if run.manifest.round in run.store.rounds():
            raise
        newest = run.store.manifest()
        return newest.round, run.store.server_state(newest)


def _stretched(images: Pictures) -> Pictures:
    low = images.min(axis=(1, 2, 3), keepdims=True)
    extent = images.max(axis=(1, 2, 3), keepdims=True) - low
    # An image without contrast, as of an extractor whose last ReLU has died, stays black.
    scaled: Pictures = (images - low) / np.where(extent > 0, extent, 1)
    return scaled


def _displayable(images: Pictures) -> Pictures:
    """Three channels as colours; any other number as grey, by their mean."""
    return images if images.shape[-1] == 3 else images.mean(axis=-1, dtype=np.float32)
