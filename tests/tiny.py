"""Participants so small that their states can be kept among the fixtures.

The runs in `fixtures/` name these functions in their config.toml: they must stay, and must keep
returning the same.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

Shape = tuple[int, ...]
CLASSES = ("zero", "one", "two", "three")


def _digits(start: int, count: int) -> tuple[Any, Any]:
    digits = load_digits(n_class=len(CLASSES))
    rows = slice(start, start + count)
    return digits.images[rows], digits.target[rows]


def _divided(inputs: Any, labels: Any) -> dict[str, Any]:
    first, second = len(labels) * 6 // 10, len(labels) * 8 // 10
    return {
        "train": (inputs[:first], labels[:first]),
        "val": (inputs[first:second], labels[first:second]),
        "test": (inputs[second:], labels[second:]),
    }


def _images(start: int) -> Callable[[], dict[str, Any]]:
    def load() -> dict[str, Any]:
        grey, labels = _digits(start, 60)
        return _divided(np.round(grey * (255 / 16)).astype(np.uint8), labels)

    return load


def _rows(start: int) -> Callable[[], dict[str, Any]]:
    def load() -> dict[str, Any]:
        grey, labels = _digits(start, 60)
        return _divided((grey.reshape(-1, 64)[:, 16:32] / 16).astype(np.float32), labels)

    return load


def _large(start: int) -> Callable[[], dict[str, Any]]:
    def load() -> dict[str, Any]:
        grey, labels = _digits(start, 60)
        pixels = np.round(grey * (255 / 16)).astype(np.uint8)
        return _divided(pixels.repeat(2, axis=1).repeat(2, axis=2), labels)

    return load


ada_large, ben_large = _large(0), _large(60)  # as large as the CNNs need
ada_images, ben_images = _images(0), _images(60)
ada_rows, ben_rows = _rows(0), _rows(60)


def dense(classes: int, shape: Shape) -> nn.Module:
    """Under a thousand parameters, for 8x8 grey pixels."""
    width = int(np.prod(shape))
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, classes))


def normalised(classes: int, shape: Shape) -> nn.Module:
    """With batch normalisation, whose statistics are part of a client's state."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, classes),
    )


def tabular(classes: int, shape: Shape) -> nn.Module:
    """For rows of numbers; dropout draws from the client's stream."""
    return nn.Sequential(nn.Linear(shape[0], 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, classes))
