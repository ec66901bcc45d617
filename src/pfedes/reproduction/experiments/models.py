"""Table 1: the five CNNs and the extractor, with sizes computed from the real modules."""

import torch

from pfedes.core.flops import CountedFlops
from pfedes.models import MODELS, build_model
from pfedes.models.cnn import CNN
from pfedes.models.extractor import Extractor
from pfedes.reproduction.experiment import Exhibit, Experiment, Results
from pfedes.reproduction.published import published
from pfedes.results.table import Table

SHAPE = (3, 32, 32)
MIB = 2**20


def show(results: Results) -> Exhibit:
    """Layers, parameters, size and forward cost; and where the paper's size is another."""
    rows, wrong = [], []
    for name in MODELS:
        ten, hundred = (build_model(name, classes, SHAPE) for classes in (10, 100))
        assert isinstance(ten, CNN), "the five are CNNs"
        shown = name.upper().replace("CNN", "CNN-")
        theirs = published("Table 1", "model size", shown)
        size = 4 * parameters(ten) / MIB
        if theirs is None or abs(size - theirs) >= 0.01:
            wrong.append(f"{shown} (paper {theirs:.2f}, computed {size:.3f})")
        rows.append(
            [
                shown,
                str(ten.conv2.out_channels),
                f"{ten.fc1.out_features:,}",
                f"{parameters(ten):,}",
                f"{parameters(hundred):,}",
                f"{size:.3f}",
                f"{theirs:.2f}",
                f"{megaflops(ten):.2f}",
            ]
        )
    extractor = Extractor(SHAPE[0], 8, "relu")
    floats = parameters(extractor)
    both = f"{floats:,}"
    costs = [f"{4 * floats / MIB:.4f}", "-", f"{megaflops(extractor):.2f}"]
    rows.append(["extractor", "-", "-", both, both, *costs])
    columns = [
        *("model", "conv2", "FC1", "parameters (10 classes)", "(100 classes)"),
        *("MiB (10 classes)", "paper", "forward MFLOP"),
    ]
    notes = [
        "Sizes are those of float32 parameters with 10 classes in MiB (2^20 bytes), the unit in "
        "which the paper's figures come out.",
        f"The paper's size differs by 0.01 or more for: {', '.join(wrong) or 'none'}.",
        "No round width of FC1 gives CNN-4 the paper's 3.81 MiB (753 would); 3.81 MiB are 1.00 "
        "million floats. CNN-4 is built here as its table says.",
    ]
    return Exhibit({"models": Table(columns, rows)}, notes=notes)


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def megaflops(model: torch.nn.Module) -> float:
    """Of one forward pass of one image."""
    with torch.no_grad(), CountedFlops() as counted:
        model(torch.zeros(1, *SHAPE))
    return float(counted.total / 1e6)


MODELS_TABLE = Experiment(
    name="models",
    title="The models, with computed sizes",
    source="Table 1",
    settings=lambda scale: [],
    show=show,
    deviations=(),  # nothing is trained
)
