"""What operations cost that torch's own list of formulas leaves out, and which nobody counts.

One multiply-add is two floating-point operations.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

Formula = Callable[..., int]
"""Called with what the operation was called with, and its result as `out_val`."""

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
        return True  # somebody's own, and nobody can look into it
    return bool(PRODUCTS.search(name)) and not NO_PRODUCTS.search(name)


def _matrix_vector(matrix: Tensor, *_: Any, **__: Any) -> int:
    return 2 * matrix.numel()


def _added_matrix_vector(_: Tensor, matrix: Tensor, *__: Any, **___: Any) -> int:
    return 2 * matrix.numel()


def _attention(query: Tensor, key: Tensor, value: Tensor, width: int, *_: Any, **__: Any) -> int:
    """Of nn.MultiheadAttention in one operation: with its four projections, of which q has two."""
    projections = (2 * query.numel() + key.numel() + value.numel()) * width
    scores_and_means = 2 * query.numel() * key.shape[1]
    return 2 * (projections + scores_and_means)


def _encoder_layer(source: Tensor, width: int, *others: Any, **_: Any) -> int:
    """Of nn.TransformerEncoderLayer in one operation: attention and two linear layers."""
    widening, _bias, narrowing, *_rest = others[12:]
    linear: int = source.numel() // width * (widening.numel() + narrowing.numel())
    return _attention(source, source, source, width) + 2 * linear


def _recurrence(inputs: Tensor, of_inputs: Tensor, of_state: Tensor, *_: Any, **__: Any) -> int:
    """Of a layer of an LSTM: every step multiplies an input and a state by their weights."""
    steps = inputs.numel() // inputs.shape[-1]
    return 2 * steps * (of_inputs.numel() + of_state.numel())


def _recurrence_backward(*args: Any, **kwargs: Any) -> int:
    """As much again for the gradients of inputs and states, and for those of weights."""
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
