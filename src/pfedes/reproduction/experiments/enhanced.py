"""Figure 7: images above their enhanced versions."""

from typing import Any

import numpy as np

from pfedes.report.enhanced import SCALING, EnhancedPairs, enhanced_figure, enhanced_pairs
from pfedes.reproduction.experiment import Exhibit, Experiment, Measure, Results
from pfedes.reproduction.experiments.tables import setting
from pfedes.reproduction.scenario import label
from pfedes.results.run import Run
from pfedes.results.table import Table

CELL = setting("pfedes", "cifar10", 100, homogeneous=False)
COUNT = 5


def measure(run: Run) -> dict[str, Any]:
    """Five images and what the last global extractor makes of them, as bytes."""
    pairs = enhanced_pairs(run, COUNT)
    assert pairs is not None, "a run of pFedES shares an extractor"
    pictures = {"originals": pairs.originals, "enhanced": pairs.enhanced}
    whole = {name: np.round(255 * values).astype(int).tolist() for name, values in pictures.items()}
    return {"round": pairs.round, "classes": pairs.classes, "zeros": pairs.zeros, **whole}


def show(results: Results) -> Exhibit:
    """The figure, and how much of each image is left."""
    found = results.measured(CELL, MEASURE)
    if found is None:
        return Exhibit(notes=["Not run yet."])
    pictures = {
        name: (np.array(found[name]) / 255).astype(np.float32) for name in ("originals", "enhanced")
    }
    pairs = EnhancedPairs(found["round"], tuple(found["classes"]), zeros=found["zeros"], **pictures)
    rows = [
        [name, f"{resemblance(original, enhanced):.3f}"]
        for name, original, enhanced in zip(
            pairs.classes, pairs.originals, pairs.enhanced, strict=True
        )
    ]
    notes = [
        f"{label('cifar10', 100, results.scale.sources)}, heterogeneous: the global extractor "
        f"after round {pairs.round}; {SCALING}.",
        f"{100 * pairs.zeros:.1f} % of the extractor's output is exactly zero.",
    ]
    columns = ["image", "correlation of grey values, original and enhanced"]
    return Exhibit({"enhanced": Table(columns, rows)}, {"enhanced": enhanced_figure(pairs)}, notes)


def resemblance(original: Any, enhanced: Any) -> float:
    """Pearson's, over pixels; 0 where the enhanced image is all of one value."""
    one, other = (
        (image.mean(-1) if image.ndim == 3 else image).ravel() for image in (original, enhanced)
    )
    if one.std() == 0 or other.std() == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


MEASURE = Measure("enhanced", lambda scale: [CELL], measure)
ENHANCED = Experiment(
    name="enhanced",
    title="Images and what the shared extractor makes of them",
    source="Figure 7",
    settings=lambda scale: [CELL],
    show=show,
    measures=(MEASURE,),
)
