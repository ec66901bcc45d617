"""Three wards with the tables of scikit-learn's breast cancer data, and three models for them."""

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from torch import nn

Shape = tuple[int, ...]


def _ward(mine: int, of: int = 3) -> dict[str, Any]:
    """Every third patient; features standardised by the ward's own training part."""
    cancer = load_breast_cancer()
    rows, names = cancer.data[mine::of], cancer.target_names[cancer.target[mine::of]]
    first, second = len(names) * 6 // 10, len(names) * 7 // 10
    mean, std = rows[:first].mean(axis=0), rows[:first].std(axis=0)
    rows = ((rows - mean) / std).astype(np.float32)
    return {
        "train": (rows[:first], names[:first]),
        "val": (rows[first:second], names[first:second]),
        "test": (rows[second:], names[second:]),
    }


def north() -> dict[str, Any]:
    return _ward(0)


def south() -> dict[str, Any]:
    return _ward(1)


def west() -> dict[str, Any]:
    return _ward(2)


def linear(classes: int, shape: Shape) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], classes))


def deep(classes: int, shape: Shape) -> nn.Module:
    return nn.Sequential(
        nn.Linear(shape[0], 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, classes)
    )


def wide(classes: int, shape: Shape) -> nn.Module:
    return nn.Sequential(
        nn.Linear(shape[0], 128), nn.Tanh(), nn.Dropout(0.2), nn.Linear(128, classes)
    )
