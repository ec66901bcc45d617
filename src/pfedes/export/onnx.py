"""A client's model as an ONNX file: inputs in, probabilities out, the same as PyTorch's."""

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor, nn

from pfedes.core.samples import Normaliser, Preparation
from pfedes.data.preprocess import Preprocess
from pfedes.errors import ConfigError, ModelError
from pfedes.export.model import NearestPrototype

TOLERANCE = 1e-4
"""Largest difference between what ONNX Runtime and PyTorch give, absolute and relative."""

PACKAGES = ("onnx", "onnxscript", "onnxruntime")


class Whole(nn.Module):
    """A model that takes inputs as they are in a file, without preparation."""

    def __init__(self, model: nn.Module, prepare: Preparation) -> None:
        super().__init__()
        self.model = model
        self.pixels = isinstance(prepare, Normaliser)
        mean, std = torch.tensor([prepare.mean, prepare.std], dtype=torch.float64)
        self.scale: Tensor
        self.shift: Tensor
        self.register_buffer("scale", (1 / (255 * std if self.pixels else std)).float())
        self.register_buffer("shift", (-mean / std).float())

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        if self.pixels:
            prepared = (inputs.float() * self.scale + self.shift).permute(0, 3, 1, 2)
        else:
            along = (-1, *[1] * (inputs.dim() - 2))
            prepared = inputs * self.scale.view(along) + self.shift.view(along)
        logits = self.model(prepared)
        return logits.softmax(dim=1), logits


class WholeOfColumns(nn.Module):
    """A model that takes the columns of a table: `Preprocess.encode` in operations of ONNX."""

    def __init__(self, model: nn.Module, prepare: Preparation, table: Preprocess) -> None:
        super().__init__()
        self.whole = Whole(model, prepare)
        self.sizes = [len(category.levels) for category in table.categories]
        self.numbers = len(table.numbers)
        known = [(n.mean, n.std, math.nan if n.fill is None else n.fill) for n in table.numbers]
        self.learned: Tensor
        self.register_buffer("learned", torch.tensor(known, dtype=torch.float64).reshape(-1, 3).T)

    def forward(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        parts = []
        if self.numbers:
            mean, std, fill = self.learned
            numbers = columns[:, : self.numbers]
            parts.append((torch.where(numbers.isnan(), fill, numbers) - mean) / std)
        for place, size in enumerate(self.sizes, self.numbers):
            levels = torch.arange(size, dtype=torch.float64)
            hot = (columns[:, place : place + 1] == levels).double()
            parts += [hot, 1 - hot.sum(dim=1, keepdim=True)]
        found: tuple[Tensor, Tensor] = self.whole(torch.cat(parts, dim=1).float())
        return found


def columns_of_noise(table: Preprocess, count: int) -> Tensor:
    """Rows with missing numbers and unknown levels among them."""
    draw = torch.Generator().manual_seed(0)
    parts = []
    for number in table.numbers:
        values = number.mean + number.std * torch.randn(count, generator=draw, dtype=torch.float64)
        if number.fill is not None:
            values[::5] = math.nan
        parts.append(values)
    parts += [
        torch.randint(-1, len(category.levels) + 1, (count,), generator=draw).double()
        for category in table.categories
    ]
    return torch.stack(parts, dim=1)


class Spelled(NearestPrototype):
    """Distances by operations that ONNX has."""

    def distances(self, representation: Tensor) -> Tensor:
        return (representation[:, None] - self.prototypes).square().sum(dim=2).sqrt()


def check_extra() -> None:
    if any(find_spec(name) is None for name in PACKAGES):
        raise ConfigError("--onnx needs the extra 'onnx': pip install 'pfedes[onnx]'")


def write_onnx(
    plain: nn.Module,
    prepare: Preparation,
    inputs: Tensor,
    path: Path,
    table: Preprocess | None = None,
) -> float:
    """Writes the file and compares it with PyTorch; returns the largest difference found.

    The model of a `table` takes its columns, and `inputs` say only how many rows are compared.
    """
    written = plain
    if isinstance(plain, NearestPrototype):
        written = Spelled(plain.model, plain.labels)
        written.prototypes = plain.prototypes
    if table is not None:
        whole: nn.Module = WholeOfColumns(plain, prepare, table).eval()
        to_write: nn.Module = WholeOfColumns(written, prepare, table).eval()
        inputs, name = columns_of_noise(table, len(inputs)), "columns"
    else:
        whole, to_write = Whole(plain, prepare).eval(), Whole(written, prepare).eval()
        name = "pixels" if whole.pixels else "numbers"
    with _quietly():
        torch.onnx.export(
            to_write,
            (inputs[:2],),
            path,
            input_names=[name],
            output_names=["probabilities", "logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return max(_difference(whole, path, inputs[:count]) for count in (1, len(inputs)))


def _difference(whole: nn.Module, path: Path, inputs: Tensor) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (name,) = [given.name for given in session.get_inputs()]
    found = map(torch.from_numpy, session.run(None, {name: inputs.numpy()}))
    with torch.no_grad():
        expected = whole(inputs)
    largest = 0.0
    for ours, theirs in zip(expected, found, strict=True):
        if not torch.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE):
            raise ModelError(
                "the ONNX model does not give PyTorch's predictions: nothing was written"
            )
        finite = torch.isfinite(ours)  # of a class it does not know, the logit is minus infinity
        largest = max(largest, float((ours - theirs)[finite].abs().max()))
    return largest


@contextmanager
def _quietly() -> Iterator[None]:
    """Silences the exporter: its progress, and its advice on packages."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # its passes raise exceptions of any kind, over many lines
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"torch cannot write this model as ONNX: {reason}") from error
    finally:
        logging.disable(level)
