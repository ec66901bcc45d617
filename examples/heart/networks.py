"""Four hospitals, four networks for rows of a table.

All end in 16 numbers before the last layer: FedProto averages these between hospitals. pFedES does
not need that.
"""

from torch import nn

Shape = tuple[int, ...]
WIDTH = 16


def linear(classes: int, shape: Shape) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], WIDTH), nn.Linear(WIDTH, classes))


def narrow(classes: int, shape: Shape) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes))


def deep(classes: int, shape: Shape) -> nn.Module:
    return nn.Sequential(
        nn.Linear(shape[0], 32),
        nn.ReLU(),
        nn.Linear(32, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, classes),
    )


def wide(classes: int, shape: Shape) -> nn.Module:
    return nn.Sequential(
        nn.Linear(shape[0], 128),
        nn.Tanh(),
        nn.Dropout(0.2),
        nn.Linear(128, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, classes),
    )
