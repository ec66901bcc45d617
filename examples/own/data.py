"""Private data: each participant has some of scikit-learn's digits, in a form of its own."""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _share(mine: int, of: int = 4) -> tuple[Any, Any]:
    """Every fourth digit: grey pixels 0..255, and labels."""
    digits = load_digits()
    grey = np.round(digits.images * (255 / 16)).astype(np.uint8)
    return grey[mine::of], digits.target[mine::of]


def _split(images: Any, labels: Any) -> dict[str, Any]:
    """The last fifth is the test; validation is taken from the rest by the library."""
    cut = len(labels) * 4 // 5
    return {"train": (images[:cut], labels[:cut]), "test": (images[cut:], labels[cut:])}


def small() -> dict[str, Any]:
    """8x8 pixels, grey, labels as numbers."""
    return _split(*_share(0))


def large() -> dict[str, Any]:
    """16x16 pixels, grey."""
    images, labels = _share(1)
    return _split(images.repeat(2, axis=1).repeat(2, axis=2), labels)


def named() -> dict[str, Any]:
    """16x16 pixels in colour, labels as names."""
    images, labels = _share(2)
    large = images.repeat(2, axis=1).repeat(2, axis=2)
    return _split(np.stack([large] * 3, axis=-1), np.array(NAMES)[labels])


class Pairs:
    """A PyTorch map-style data set: a length, and a pair at each index."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return self.images[number], int(self.labels[number])


def pairs() -> tuple[Pairs, Pairs, Pairs]:
    """8x8 pixels, as data sets for training, validation and test."""
    images, labels = _share(3)
    first, second = len(labels) * 7 // 10, len(labels) * 8 // 10
    return (
        Pairs(images[:first], labels[:first]),
        Pairs(images[first:second], labels[first:second]),
        Pairs(images[second:], labels[second:]),
    )
