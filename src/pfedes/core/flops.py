"""Floating-point operations, counted by formulas. One multiply-add is two operations."""

import logging
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

Formula = Callable[..., int]
"""Called with the arguments of the operation, and its result as `out_val`."""

aten = torch.ops.aten

TORCHS = ("aten", "prim", "prims", "profiler")
PRODUCTS = re.compile(
    r"attention|rnn|lstm|gru|conv(?!ert)|mm$|mv$|dot$|linear(_backward.*)?$|cdist|^_fft_|linalg_"
)
NO_PRODUCTS = re.compile(r"_cell|flatten_weight|norm$|cross|diagonal|check_errors")


def formula_of(operation: Any) -> Formula | None:
    """How to count an operation: by torch's formula, which may be the user's own, or by ours."""
    packet = operation._overloadpacket
    found: Formula | None = flop_registry.get(packet) or _OURS.get(packet)
    return found


def is_costly(operation: Any) -> bool:
    """Whether an operation multiplies matrices or may do so, to judge by its name.

    All others do a few operations for each number, which no formula counts.
    """
    namespace, name = operation.namespace, operation._overloadpacket.__name__
    if namespace not in TORCHS:
        return True  # a custom operation that cannot be inspected
    return bool(PRODUCTS.search(name)) and not NO_PRODUCTS.search(name)


def _matrix_vector(matrix: Tensor, *_: Any, **__: Any) -> int:
    return 2 * matrix.numel()


def _added_matrix_vector(_: Tensor, matrix: Tensor, *__: Any, **___: Any) -> int:
    return 2 * matrix.numel()


def _attention(query: Tensor, key: Tensor, value: Tensor, width: int, *_: Any, **__: Any) -> int:
    """FLOPs of nn.MultiheadAttention in one operation, with its four projections; q has two."""
    projections = (2 * query.numel() + key.numel() + value.numel()) * width
    scores_and_means = 2 * query.numel() * key.shape[1]
    return 2 * (projections + scores_and_means)


def _encoder_layer(source: Tensor, width: int, *others: Any, **_: Any) -> int:
    """FLOPs of nn.TransformerEncoderLayer in one operation: attention and two linear layers."""
    widening, _bias, narrowing, *_rest = others[12:]
    linear: int = source.numel() // width * (widening.numel() + narrowing.numel())
    return _attention(source, source, source, width) + 2 * linear


def _recurrence(inputs: Tensor, of_inputs: Tensor, of_state: Tensor, *_: Any, **__: Any) -> int:
    """FLOPs of an LSTM layer: every step multiplies an input and a state by their weights."""
    steps = inputs.numel() // inputs.shape[-1]
    return 2 * steps * (of_inputs.numel() + of_state.numel())


def _recurrence_backward(*args: Any, **kwargs: Any) -> int:
    """Twice the FLOPs of the forward pass: gradients of inputs and states, and of weights."""
    return 2 * _recurrence(*args, **kwargs)


_OURS: dict[Any, Formula] = {
    aten.mv: _matrix_vector,
    aten.dot: _matrix_vector,
    aten.vdot: _matrix_vector,
    aten.addmv: _added_matrix_vector,
    aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[
        aten._scaled_dot_product_flash_attention
    ],
    aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        aten._scaled_dot_product_flash_attention_backward
    ],
    aten._native_multi_head_attention: _attention,
    aten._transformer_encoder_layer_fwd: _encoder_layer,
    aten.mkldnn_rnn_layer: _recurrence,
    aten.mkldnn_rnn_layer_backward: _recurrence_backward,
}


T = TypeVar("T")

log = logging.getLogger(__name__)


class CountedFlops(TorchDispatchMode):
    """Adds up the formulas of every operation that is done.

    As torch's FlopCounterMode does, but without its import of the compiler, which would add more
    than a second to the start of every process; and `uncounted` names what has no formula.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's has no annotations
        self.total = 0
        self.uncounted: set[str] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # asked by the base class: nothing is compiled here, so nothing to hide from

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        formula = formula_of(func)
        if formula is None:
            with self:  # what consists of other operations is counted as these
                if (parts := func.decompose(*args, **kwargs)) is not NotImplemented:
                    return parts
        result = func(*args, **kwargs)
        if formula is not None:
            try:
                self.total += formula(*args, **kwargs, out_val=result)
            except Exception:  # of tensors that have no one shape; no reason to end a training
                self.uncounted.add(str(func))
        elif is_costly(func):
            self.uncounted.add(str(func))
        return result


@cache  # once in a process: every step of every client would say the same
def _admit_ignorance_of(operation: str) -> None:
    log.warning("FLOPs are too low: there is no formula for %s", operation)


class FlopMeter:
    """Counts one step of each kind by formulas; after that it only multiplies.

    `known` holds what a sample costs in each kind of step. It is shared among the meters of one
    process: equal kinds must mean equal work.
    """

    def __init__(self, known: dict[Hashable, Fraction] | None = None) -> None:
        self.known = {} if known is None else known
        self._total = Fraction(0)

    @property
    def total(self) -> int:
        return round(self._total)

    def add(self, flops: int) -> None:
        """Adds what torch's counter does not know, such as a decomposition."""
        self._total += flops

    def count(self, kind: Hashable, samples: int, work: Callable[[], T]) -> T:
        """Does the work on so many samples and adds its cost to the total."""
        if kind in self.known:
            result = work()
        else:
            with CountedFlops() as counted:
                result = work()
            for operation in sorted(counted.uncounted):
                _admit_ignorance_of(operation)
            self.known[kind] = Fraction(counted.total, samples)
        self._total += samples * self.known[kind]
        return result


def by_server(rounds: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The server's FLOPs as `flops_server`; empty for methods that do not train there."""
    spent = sum(row.get("flops_server", 0) for row in rounds)
    return {"flops_server": spent} if spent else {}
