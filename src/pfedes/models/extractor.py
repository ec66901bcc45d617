"""The small homogeneous feature extractor that travels (figure 3), by the kind of input."""

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes.core.shapes import IMAGES, ROWS, SIGNALS, Shape
from pfedes.errors import ModelError
from pfedes.models.convolution import ImageConv2d

Activation = Literal["relu", "none", "tanh"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": partial(F.relu, inplace=True),
    "none": lambda x: x,
    "tanh": torch.tanh,
}
assert set(ACTIVATIONS) == set(get_args(Activation))


class Extractor(nn.Module):
    """The extractor of the paper: two 3x3 convolutions that keep the shape of an image.

    Args:
        channels: Channels of the images.
        width: Channels between the convolutions.
        final_activation: What follows the second one: `"relu"`, `"none"` or `"tanh"`.

    Example:
        >>> from pfedes import Extractor
        >>> sum(parameter.numel() for parameter in Extractor().parameters())
        443
    """

    def __init__(
        self, channels: int = 3, width: int = 8, final_activation: Activation = "relu"
    ) -> None:
        super().__init__()
        self.conv1 = ImageConv2d(channels, width, 3, padding=1)
        self.conv2 = ImageConv2d(width, channels, 3, padding=1)
        self.final = ACTIVATIONS[final_activation]

    def forward(self, x: Tensor) -> Tensor:
        """Enhances images.

        Args:
            x: Images, (n, channels, height, width).

        Returns:
            Enhanced images of the same shape.
        """
        return self.final(self.conv2(F.relu(self.conv1(x), inplace=True)))


class SignalExtractor(nn.Module):
    """The same along one axis, for signals (channels, length) of any length.

    6 x channels x width + width + channels parameters: 155 for 3 channels and a width of 8.
    """

    def __init__(self, channels: int, width: int, final_activation: Activation = "none") -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(channels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, channels, 3, padding=1)
        self.final = ACTIVATIONS[final_activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.final(self.conv2(F.relu(self.conv1(x), inplace=True)))


class RowExtractor(nn.Module):
    """Two linear layers, for rows of a table and embeddings (features,).

    2 x features x width + width + features parameters: 518 for 30 features and a width of 8.
    """

    def __init__(self, features: int, width: int, final_activation: Activation = "none") -> None:
        super().__init__()
        self.fc1 = nn.Linear(features, width)
        self.fc2 = nn.Linear(width, features)
        self.final = ACTIVATIONS[final_activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.final(self.fc2(F.relu(self.fc1(x), inplace=True)))


class Residual(nn.Module):
    """Adds what an extractor makes of an input to the input itself: x + G(x)."""

    def __init__(self, change: nn.Module) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        enhanced: Tensor = x + self.change(x)
        return enhanced


_BY_RANK: dict[int, Callable[[int, int, Activation], nn.Module]] = {
    IMAGES: Extractor,
    SIGNALS: SignalExtractor,
    ROWS: RowExtractor,
}


def extractor_for(shape: Shape, width: int, final_activation: Activation) -> nn.Module:
    """A freshly initialised extractor for such inputs.

    Only the first number of the shape matters: images may differ in size, signals in length.
    """
    if len(shape) not in _BY_RANK or min(shape) < 1:
        raise ModelError(
            f"there is no extractor for inputs of {list(shape)}, only for [channels, height, "
            "width], [channels, length] and [features]"
        )
    return _BY_RANK[len(shape)](shape[0], width, final_activation)
