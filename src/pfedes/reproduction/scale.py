"""How much of an experiment is run: the paper's own size, a laptop's, or a minute's."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pfedes.config import Config, configure
from pfedes.errors import ConfigError, unknown
from pfedes.reproduction.scenario import Setting

Grid = Mapping[str, tuple[Any, ...]]

ALL = "all"
EXTRACTOR_EPOCHS = 5
SAME_FLOP = "same FLOP"
"""In the place of `train.epochs`: as many as make Standalone compute what pFedES computes."""
PHASE_1, PHASE_2 = 2.05, 0.84
"""What an epoch of pFedES' phases computes, in epochs of Standalone: the mean of CNN-1 to 5."""


@dataclass(frozen=True)
class Crowd:
    """What N clients of the paper become, and how long they learn if ten of N take part."""

    clients: int
    rounds: int
    epochs: int
    batch_size: int


@dataclass(frozen=True)
class Scale:
    """A size of all experiments. What differs from the paper is said in `deviations`."""

    name: str
    about: str
    crowds: Mapping[int, Crowd]
    sources: Mapping[str, str]
    classes: Mapping[str, int]
    """How many classes the source in a data set's place has."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    shrink: int = 1
    """The extractor learns this many times fewer epochs than in the paper."""
    equal_budget: bool = True
    """Whether clients learn as long at every participation, in fewer rounds when it is higher."""
    grid: Grid = field(default_factory=dict)
    grids: Mapping[str, Grid] = field(default_factory=dict)
    deviations: tuple[str, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    """What is used in the place of the paper's data sets: such numbers are no results."""
    methods: tuple[str, ...] = (ALL,)
    """Methods to compare; 'all' stands for those that an experiment compares anyway."""

    def compared(self, usual: Sequence[str]) -> tuple[str, ...]:
        """The methods to compare in an experiment that usually compares these."""
        names = (usual if name == ALL else [name] for name in self.methods)
        return tuple(dict.fromkeys(itertools.chain(*names)))

    def configs(self, setting: Setting) -> list[Config]:
        """What is run for a setting: the points of a grid where the paper searched one."""
        grid: dict[str, tuple[Any, ...]] = {}
        if setting.tuned:
            grid = {**self.grid, **self.grids.get(setting.method, {})}
        for key, _ in setting.options:
            grid.pop(key, None)
        return [
            self._config(setting, dict(zip(grid, point, strict=True)))
            for point in itertools.product(*grid.values())
        ]

    def _config(self, setting: Setting, point: Mapping[str, Any]) -> Config:
        crowd = self.crowds[setting.clients]
        rounds = crowd.rounds
        usual = 10 / setting.clients
        if self.equal_budget and setting.participation != usual:
            rounds = max(1, round(rounds * usual / setting.participation))
        classes = {"cifar10": 10, "cifar100": 100}[setting.data]
        dealt = setting.classes_per_client * self.classes[setting.data] / classes
        settings = {
            "data.source": self.sources[setting.data],
            "partition.clients": crowd.clients,
            "partition.classes_per_client": max(1, round(dealt)),
            "models.pool": ["cnn1"] if setting.homogeneous else [f"cnn{n}" for n in range(1, 6)],
            "train.rounds": rounds,
            "train.participation": setting.participation,
            "train.epochs": crowd.epochs,
            "train.batch_size": crowd.batch_size,
            "runtime.fleet": "serial",
            "runtime.report": False,  # its states are removed, and nobody reads hundreds of pages
            **self.settings,
            **({"method.extractor_epochs": EXTRACTOR_EPOCHS} if setting.method == "pfedes" else {}),
            **dict(setting.options),
        }
        if "method.extractor_epochs" in settings:
            settings["method.extractor_epochs"] = self._shrunk(settings["method.extractor_epochs"])
        if settings["train.epochs"] == SAME_FLOP:
            both = PHASE_1 * crowd.epochs + PHASE_2 * self._shrunk(EXTRACTOR_EPOCHS)
            settings["train.epochs"] = round(both)
        return configure(method=setting.method, seed=setting.seed, settings={**settings, **point})

    def _shrunk(self, extractor_epochs: int) -> int:
        return max(1, extractor_epochs // self.shrink)


PAPER_ROUNDS = 500
FULL = Scale(
    name="full",
    about="the paper's settings with its grid: for a cluster, or a very patient machine",
    crowds={n: Crowd(n, rounds=PAPER_ROUNDS, epochs=10, batch_size=512) for n in (10, 20, 50, 100)},
    sources={"cifar10": "cifar10", "cifar100": "cifar100"},
    classes={"cifar10": 10, "cifar100": 100},
    equal_budget=False,
    grid={"train.epochs": (1, 10), "train.batch_size": (64, 128, 256, 512)},
    grids={
        "pfedes": {
            "method.mu": (0.1, 0.2, 0.3, 0.4, 0.5),
            "method.extractor_epochs": (5, 10, 15, 20),
        },
        "fml": {"method.alpha": (0.1, 0.5, 0.9), "method.beta": (0.1, 0.5, 0.9)},
        "fedkd": {"method.mentee_lr": (0.005, 0.01)},
        "fd": {"method.gamma": (0.1, 1.0, 10.0)},
        "fedproto": {"method.lambda": (0.1, 1.0, 10.0)},
    },
    deviations=(
        "The paper does not say which values of the baselines' own parameters it searched: "
        "the grids are ours.",
        "500 rounds throughout, where the paper took 100 or 500.",
        "Where the paper does not speak of a grid: E = 10, B = 512, mu = 0.1, E_fe = 5.",
    ),
)
CONVERGED = Scale(
    name="converged",
    about="all clients, all images, 100 epochs per client: about three hours for a column",
    crowds={
        10: Crowd(10, rounds=100, epochs=1, batch_size=64),
        20: Crowd(20, rounds=200, epochs=1, batch_size=64),
        50: Crowd(50, rounds=100, epochs=5, batch_size=64),
        100: Crowd(100, rounds=100, epochs=10, batch_size=64),
    },
    sources=FULL.sources,
    classes=FULL.classes,
    settings={"train.augment": True},
    deviations=(
        "A client trains for 100 epochs on average: T = 100 rounds of E = 1, 5, 10 (N = 10, 50, "
        "100). The paper's T of 100 or 500 and E of 1 or 10 give between 10 and 5,000 epochs.",
        "Training images are augmented (flip, crop, random erasing) as in the authors' code; the "
        "paper does not mention augmentation.",
        "No grid: B = 64, mu = 0.1, E_fe = 5, and every baseline with its default parameters. The "
        "paper reports the best of a grid.",
        "Where C varies, T falls as C rises, so that clients train for about as long at every C.",
    ),
)
LAPTOP = Scale(
    name="laptop",
    about="all clients, all images, a small part of the training: about two hours for a table",
    crowds={
        10: Crowd(10, rounds=5, epochs=1, batch_size=64),
        20: Crowd(20, rounds=40, epochs=1, batch_size=64),
        50: Crowd(50, rounds=20, epochs=1, batch_size=16),
        100: Crowd(100, rounds=25, epochs=2, batch_size=16),
    },
    sources=FULL.sources,
    classes=FULL.classes,
    shrink=5,
    deviations=(
        "A client learns for 5, 4 and 5 epochs on average (N = 10, 50, 100): T = 5, 20, 25 rounds "
        "of E = 1, 1, 2. The paper's T of 100 or 500 and E of 1 or 10 come to 10 epochs at the "
        "very least, and to 5,000 at most. No method has learned all it can.",
        "Clients are drawn at random: in so few rounds about 7 % of them are never selected at "
        "N = 100 and 1 % at N = 50. They count in every mean with their untrained models.",
        "Batches of 64, 16 and 16, as small as the few steps ask for; the paper has 64 to 512.",
        "E_fe is a fifth of the paper's: 1 in the tables, 1 to 4 for its 5 to 20.",
        "No grid: mu = 0.1, and every baseline with its defaults.",
        "Where C varies, T falls as C rises, so that clients learn for about as long at every C.",
    ),
)
SMOKE = Scale(
    name="smoke",
    about="a minute each, on digits and generated images: shows that it works, no result",
    crowds={
        10: Crowd(3, rounds=2, epochs=1, batch_size=16),
        20: Crowd(5, rounds=4, epochs=1, batch_size=16),
        50: Crowd(10, rounds=2, epochs=1, batch_size=16),
        100: Crowd(20, rounds=2, epochs=1, batch_size=16),
    },
    sources={"cifar10": "digits", "cifar100": "synthetic:samples=600,classes=20,size=16"},
    classes={"cifar10": 10, "cifar100": 20},
    settings={"data.limit": 600},
    shrink=5,
    stand_ins={"cifar10": "digits", "cifar100": "generated"},
    deviations=(
        "600 handwritten digits stand for CIFAR-10, 600 generated images in 20 classes for "
        "CIFAR-100; 3, 10 and 20 clients for 10, 50 and 100.",
        "Two rounds of one epoch, batches of 16; E_fe is a fifth of the paper's.",
        "Nothing about the methods can be learned from these numbers.",
    ),
)
SCALES = {scale.name: scale for scale in (SMOKE, LAPTOP, CONVERGED, FULL)}


def scale_named(name: str) -> Scale:
    """A scale by its name; raises ConfigError, with the known names, if there is none."""
    if name not in SCALES:
        raise ConfigError(unknown("scale", name, SCALES))
    return SCALES[name]
