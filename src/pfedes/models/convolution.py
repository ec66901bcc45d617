"""Convolutions from and to images, which have few channels.

Kernels compute as many output channels at once as a register has lanes, 8 or 16. One that ends in
an image of three channels leaves most lanes idle: the last layer of an extractor, and the gradient
of a first layer with respect to its input. Here such a convolution computes four rows at once, as
if they were channels, which is twice as fast although it multiplies some zeros.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.flop_counter import conv_flop_count, register_flop_formula

FEW = 4
"""Channels of what counts as an image."""

ROWS = 4


class ImageConv2d(nn.Conv2d):
    """nn.Conv2d with stride 1, the same but faster where its input or output is an image."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, padding: int = 0) -> None:
        super().__init__(inputs, outputs, kernel, padding=padding)
        self.margin = padding

    def forward(self, input: Tensor) -> Tensor:
        plain = self.out_channels > FEW and not input.requires_grad
        if plain or input.dim() != 4 or input.device.type != "cpu":
            return super().forward(input)
        assert self.bias is not None, "made with one"
        given: tuple[Tensor, ...] = input, self.weight, self.bias
        if torch.is_autocast_enabled("cpu"):
            # As autocast does for a convolution of torch's. Out here, so that forward and backward
            # see one type of numbers, and each gradient becomes float32 again by itself.
            given = tuple(tensor.to(torch.get_autocast_dtype("cpu")) for tensor in given)
        # torch's own annotations do not know what a user's function returns.
        return _Convolution.apply(*given, self.margin)  # type: ignore[no-any-return,no-untyped-call]


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        if _pays(len(weight), x.shape[2] + 2 * padding - len(weight[0, 0]) + 1):
            result: Tensor = by_rows(x, weight, bias, padding)
            return result
        return F.conv2d(x, weight, bias, padding=padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wanted: list[bool] = list(ctx.needs_input_grad[:3])
        quick: dict[int, Tensor] = {}
        mirrored = weight.transpose(0, 1).flip(2, 3)
        full = weight.shape[-1] - 1 - ctx.padding  # beyond its edges a gradient reaches so far
        if wanted[0] and full >= 0 and _pays(*x.shape[1:3]):
            quick[0] = by_rows(gradient, mirrored, weight.new_zeros(len(mirrored)), full)
        if wanted[1] and len(weight) <= FEW and full == ctx.padding:
            # Of two of one size it does not matter which slides over the other; this is quicker.
            swapped = _gradients(x, gradient, mirrored, full, [False, True, False])[1]
            quick[1] = swapped.transpose(0, 1).flip(2, 3)
            quick[2] = gradient.sum((0, 2, 3))
        slow = [want and i not in quick for i, want in enumerate(wanted)]
        rest = _gradients(gradient, x, weight, ctx.padding, slow) if any(slow) else [None] * 3
        return *(quick.get(i, other) for i, other in enumerate(rest)), None


def _gradients(
    gradient: Tensor, x: Tensor, weight: Tensor, padding: int, wanted: list[bool]
) -> list[Any]:
    """The wanted gradients with respect to the input, the weights and the bias."""
    # torch.ops has no annotations.
    return torch.ops.aten.convolution_backward(  # type: ignore[no-any-return]
        gradient, x, weight, [len(weight)], [1, 1], [padding] * 2, [1, 1], False, [0, 0], 1, wanted
    )


def _pays(channels: int, height: int) -> bool:
    """Whether a result of such a shape is better computed by rows."""
    return channels <= FEW and height % ROWS == 0


def _by_rows(x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """A convolution that computes four rows of its output at once."""
    # The weights of each row, shifted down by one row from those of the row before.
    tall = torch.cat([F.pad(weight, (0, 0, row, ROWS - 1 - row)) for row in range(ROWS)])
    tall = tall.contiguous(memory_format=torch.channels_last)
    rows = F.conv2d(x, tall, bias.repeat(ROWS), stride=(ROWS, 1), padding=padding)
    count, _, height, width = rows.shape
    shape = count, len(weight), height * ROWS, width
    result = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    lines = result.permute(0, 2, 3, 1).unflatten(1, (height, ROWS))
    lines.copy_(rows.permute(0, 2, 3, 1).unflatten(3, (ROWS, -1)).transpose(2, 3))
    return result


# An operation of torch, so that its work is counted as one convolution. Not by torch's decorator
# for it, whose first call imports the compiler: more than a second.
_library = torch.library.Library("pfedes", "DEF")
_library.define("convolution_by_rows(Tensor x, Tensor weight, Tensor bias, int padding) -> Tensor")
_library.impl("convolution_by_rows", _by_rows, "CompositeExplicitAutograd")
_library.impl("convolution_by_rows", torch.library.fallthrough_kernel, "Autograd")
by_rows = torch.ops.pfedes.convolution_by_rows


@register_flop_formula(torch.ops.pfedes.convolution_by_rows)
def _flops(x: list[int], weight: list[int], *_: object, out_shape: list[int], **__: object) -> int:
    """FLOPs as torch counts them for a convolution or its gradient, without the zeros."""
    return conv_flop_count(x, weight, min(x, out_shape, key=lambda shape: shape[2:]))
