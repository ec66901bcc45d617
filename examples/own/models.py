"""Four private models that have nothing in common but the classes they tell apart."""

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


def mlp(classes: int, shape: Shape) -> nn.Module:
    """Written by hand: three linear layers on all pixels."""
    pixels = shape[0] * shape[1] * shape[2]
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(pixels, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, classes),
    )


def cnn(classes: int, shape: Shape) -> nn.Module:
    """A plain convolutional network for small images."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), classes),
    )


class Block(nn.Module):
    """Two convolutions with batch normalisation, and a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.inner(x))


def resnet(classes: int, shape: Shape) -> nn.Module:
    """Residual blocks with batch normalisation, averaged over the image; takes any size."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Block(16),
        nn.MaxPool2d(2),
        Block(16),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


class Transformer(nn.Module):
    """A small vision transformer: patches of 4x4, two layers, the mean of all tokens."""

    def __init__(self, classes: int, shape: Shape, width: int = 32) -> None:
        super().__init__()
        channels, height, side = shape
        self.patches = nn.Conv2d(channels, width, 4, stride=4)
        self.places = nn.Parameter(torch.zeros(1, (height // 4) * (side // 4), width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        logits: Tensor = self.head(self.norm(self.layers(tokens)).mean(1))
        return logits


def transformer(classes: int, shape: Shape) -> nn.Module:
    return Transformer(classes, shape)
