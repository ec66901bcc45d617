"""The runs behind `results/`, the most informative first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pfedes.reproduction.experiment import Experiment
from pfedes.reproduction.experiments.ablation import ABLATION
from pfedes.reproduction.experiments.leaderboard import LEADERBOARD
from pfedes.reproduction.experiments.public_code import PUBLIC_CODE
from pfedes.reproduction.experiments.sharing import SHARING
from pfedes.reproduction.experiments.sweeps import NONIID, PARTICIPATING, SENSITIVITY
from pfedes.reproduction.experiments.tables import seeds_of, setting
from pfedes.reproduction.runner import Campaign, each_once
from pfedes.reproduction.scale import CONVERGED, LAPTOP, Scale
from pfedes.reproduction.scenario import COMPARED, DATA, Setting
from pfedes.sweep.cells import Cell, Watcher
from pfedes.sweep.execute import run_cells

CLOSE = ("standalone", "pfedes", "fedproto")
"""The methods between which the question is close: they come first, and with further seeds."""
BY_WORTH = (*CLOSE, *(method for method in COMPARED if method not in CLOSE))


@dataclass(frozen=True)
class Stage:
    """Runs of one scale that answer one question."""

    name: str
    about: str
    scale: Scale
    settings: Callable[[Scale], Sequence[Setting]]


def heterogeneous(clients: int, *data: str) -> list[Setting]:
    return [setting(method, one, clients, homogeneous=False) for one in data for method in BY_WORTH]


def further_seeds(scale: Scale) -> list[Setting]:
    """The close methods with all seeds, the ablation, and the close methods on plain images."""
    close = [setting(method, "cifar10", 100, homogeneous=False) for method in CLOSE]
    repeated = sorted((one for cell in close for one in seeds_of(cell)), key=lambda one: one.seed)
    ablation = sorted(ABLATION.settings(scale), key=lambda one: one.seed)
    return [*repeated, *ablation, *map(not_augmented, close)]


def not_augmented(cell: Setting) -> Setting:
    return replace(cell, options=(*cell.options, ("train.augment", False)))


def of(*experiments: Experiment) -> Callable[[Scale], Sequence[Setting]]:
    """Returns a function that gives the settings of these experiments at a scale."""
    return lambda scale: [one for each in experiments for one in each.settings(scale)]


STAGES = (
    Stage(
        "a",
        "heterogeneous CIFAR-10, N=100, every method",
        CONVERGED,
        lambda _: heterogeneous(100, "cifar10"),
    ),
    Stage(
        "b",
        "heterogeneous CIFAR-100, N=100, every method",
        CONVERGED,
        lambda _: heterogeneous(100, "cifar100"),
    ),
    Stage("c", "further seeds of (a), the ablation, no augmentation", CONVERGED, further_seeds),
    Stage(
        "d",
        "classes per client, participation, mu and E_fe",
        LAPTOP,
        of(NONIID, PARTICIPATING, SENSITIVITY),
    ),
    Stage("e", "what makes sharing pay, CIFAR-100", CONVERGED, of(SHARING)),
    Stage("f", "heterogeneous, N=50", CONVERGED, lambda _: heterogeneous(50, *DATA)),
    Stage("g", "heterogeneous, N=10", CONVERGED, lambda _: heterogeneous(10, *DATA)),
    Stage("h", "the leaderboard, and errors in public code", LAPTOP, of(LEADERBOARD, PUBLIC_CODE)),
)


class Queue:
    """All stages as one job: it can be stopped at any time and continues where it was.

    Runs of a scale go to `root/SCALE`, and their records to `archive/SCALE` as they end.
    """

    def __init__(
        self,
        root: Path,
        archive: Path | None,
        data_dir: str = "",
        stages: Sequence[Stage] = STAGES,
    ) -> None:
        self.root = root
        self._works = {
            stage.name: Campaign(
                experiments=(),
                scale=stage.scale,
                root=root / stage.scale.name,
                data_dir=data_dir,
                archive=archive / stage.scale.name if archive is not None else None,
                settings=tuple(stage.settings(stage.scale)),
            )
            for stage in stages
        }
        self.stages = {stage.name: stage for stage in stages}

    def cells(self, stage: str) -> list[Cell]:
        """The runs of a stage, without those that an earlier stage has."""
        return [cell for name, cell, _ in self._owned() if name == stage]

    def missing(self, stage: str | None = None) -> list[Cell]:
        """The runs that are left to do, of one stage or of all, in their order."""
        return [
            cell
            for name, cell, work in self._owned()
            if stage in (None, name) and not work.has(cell)
        ]

    def perform(
        self,
        every_experiment: Sequence[Experiment],
        *,
        jobs: int = 0,
        keep_states: bool = False,
        watch: Watcher | None = None,
    ) -> dict[str, str]:
        """Runs what is missing at the lowest priority; why a run failed, by its name."""
        owners = {cell.name: work for _, cell, work in self._owned()}

        def settle(cell: Cell) -> None:
            owners[cell.name].settle(cell, every_experiment, keep_states=keep_states)

        look = each_once(settle, watch)
        outcomes = run_cells(self.missing(), jobs=jobs, watch=look, idle=True)
        look({}, outcomes)
        return {outcome.cell.name: outcome.reason for outcome in outcomes if outcome.reason}

    def _owned(self) -> Iterator[tuple[str, Cell, Campaign]]:
        """Every run once, with the first stage that wants it."""
        seen: set[str] = set()
        for name, work in self._works.items():
            for cell in work.cells():
                if cell.name not in seen:
                    seen.add(cell.name)
                    yield name, cell, work
