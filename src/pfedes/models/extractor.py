"""The small homogeneous feature extractor that travels (figure 3)."""

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes.models.convolution import ImageConv2d

Activation = Literal["relu", "none", "tanh"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": partial(F.relu, inplace=True),
    "none": lambda x: x,
    "tanh": torch.tanh,
}
assert set(ACTIVATIONS) == set(get_args(Activation))


class Extractor(nn.Module):
    """Two 3x3 convolutions with 'same' padding: an enhanced image has the shape of the image.

    443 parameters for 3 channels and a width of 8.
    """

    def __init__(
        self, channels: int = 3, width: int = 8, final_activation: Activation = "relu"
    ) -> None:
        super().__init__()
        self.conv1 = ImageConv2d(channels, width, 3, padding=1)
        self.conv2 = ImageConv2d(width, channels, 3, padding=1)
        self.final = ACTIVATIONS[final_activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.final(self.conv2(F.relu(self.conv1(x), inplace=True)))
