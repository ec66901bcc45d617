"""One run in the paper's own terms. A scale says what is really run for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pfedes.methods import display_name

NAMES = {
    "standalone": "Standalone",
    "fml": "FML",
    "fedkd": "FedKD",
    "lg_fedavg": "LG-FedAvg",
    "fd": "FD",
    "fedproto": "FedProto",
    "pfedes": "pFedES",
    "fedavg": "FedAvg",
    "fedgh": "FedGH",
    "fedtgp": "FedTGP",
    "fedssa": "FedSSA",
    "fedre": "FedRE",
    "fedmrl": "FedMRL",
}
"""As they are written in print; the first seven in the order of the paper's tables."""


def name_in_print(method: str) -> str:
    """As the paper writes it; of others as their class says."""
    return NAMES.get(method) or display_name(method)


COMPARED = tuple(NAMES)[:7]
LISTED = tuple(name for name in NAMES if name != "fedavg")  # it needs one architecture for all
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
SCENARIOS = {10: 1.0, 50: 0.2, 100: 0.1}
"""C for each N: ten clients take part in every round."""


@dataclass(frozen=True)
class Setting:
    """What the paper varies. `options` are further settings as pairs, in the paper's sizes."""

    method: str
    data: str = "cifar10"
    clients: int = 100
    participation: float = 0.1
    homogeneous: bool = False
    classes: int = 0
    options: tuple[tuple[str, Any], ...] = ()
    tuned: bool = False  # whether the paper searched a grid for it
    seed: int = 0

    @property
    def classes_per_client(self) -> int:
        return self.classes or {"cifar10": 2, "cifar100": 10}[self.data]

    def with_seed(self, seed: int) -> "Setting":
        return replace(self, seed=seed)


def option(**options: Any) -> tuple[tuple[str, Any], ...]:
    """Settings of a method: `option(mu=0.3)` is `method.mu = 0.3`."""
    return tuple((f"method.{key}", value) for key, value in options.items())


def label(data: str, clients: int, sources: Mapping[str, str]) -> str:
    """A panel's heading; says so where a stand-in took the data set's place."""
    stands_for = sources[data].partition(":")[0]
    shown = DATA[data] if stands_for == data else f"{DATA[data]} ({stands_for})"
    return f"{shown}, N={clients}"
