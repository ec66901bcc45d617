"""Comparing methods from a script or a notebook, as `pfedes compare` does."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pfedes.api.overview import Overview
from pfedes.config import Config, configure
from pfedes.errors import ConfigError, FailedRunError, MethodError, PfedesError, StoreError, unknown
from pfedes.federation.directory import free_directory
from pfedes.federation.loop import Selector, uniform
from pfedes.methods import METHODS, known_name, method_class
from pfedes.methods.base import Method
from pfedes.sweep.cells import Cell, Outcome, collected, nth
from pfedes.sweep.compare import cells_of
from pfedes.sweep.compared import Comparison
from pfedes.sweep.execute import run_cells

log = logging.getLogger(__name__)

Chosen = Method[Any] | type[Method[Any]] | str
"""A method as an object, as a class, or by its name."""


def compare(
    config: Path | str | Config | None = None,
    *,
    methods: str | Sequence[Chosen] = "all",
    seeds: str | Sequence[int] | None = None,
    data: str | None = None,
    data_dir: Path | str | None = None,
    clients: int | None = None,
    participation: float | None = None,
    rounds: int | None = None,
    precision: str | None = None,
    settings: Mapping[str, Any] | None = None,
    out: Path | str | None = None,
    against: str | None = None,
    jobs: int = 0,
    cluster: str | None = None,
    tls: Path | str | None = None,
    cell: int | None = None,
    collect: bool = False,
    figures: bool = False,
    select: Selector = uniform,
    quiet: bool = False,
) -> Comparison:
    """Runs several methods with the same clients, models and budget.

    The options are those of `pfedes compare`. Methods that a notebook or script defines run in this
    process, all others in processes of their own.

    Args:
        methods: Names, classes or objects; an object brings its hyper-parameters.
        seeds: Random seeds; every method runs once with each. The configured one if None.
        config: A TOML file, or a configuration; None for the defaults.
        data: Name of the data set.
        data_dir: Directory of the data set.
        clients: Number of clients.
        participation: Share of clients per round, 0 to 1.
        rounds: Number of rounds.
        precision: Precision of local training.
        cluster: Address of a Dask scheduler.
        tls: Directory with the certificates of the cluster.
        settings: Values by `section.key`; `method.extractor` may be a function.
        out: Directory of the runs; finished runs in it are not repeated.
        against: Name of the method that the others are compared with; the best baseline if None.
        jobs: Runs at a time; 0 = one per core.
        cell: Number of the only run to do; 1 is the first.
        collect: Whether only to collect the finished runs below `out`.
        figures: Whether also to write figures as PNG, SVG and PDF.
        select: Chooses the clients of a round, as in `run`.
        quiet: Whether to show no progress.

    Returns:
        The results, tables and figures; its `broken` names runs that failed. Tables and numbers are
        also written into the directory of the runs.

    Raises:
        ConfigError: A setting or the name of a method is wrong.
        MethodError: No method has a result.
        FailedRunError: Every run failed.
    """
    chosen = configure(
        config,
        data=data,
        data_dir=data_dir,
        clients=clients,
        participation=participation,
        rounds=rounds,
        precision=precision,
        cluster=cluster,
        tls=tls,
        settings=settings,
    )
    names, chosen = named_methods(methods, chosen)
    plan = ComparisonPlan(chosen, names, numbers(seeds), Path(out) if out else None, against)
    if cell is not None:
        plan.run([nth(plan.cells, cell)], jobs=jobs, select=select, quiet=quiet)
    outcomes = (
        plan.collected()
        if collect or cell is not None
        else plan.run(plan.cells, jobs=jobs, select=select, quiet=quiet)
    )
    comparison = plan.comparison(outcomes)
    comparison.write(figures=figures)
    if comparison.broken:
        log.warning("%s", plan.complaint(comparison))
    return comparison


class ComparisonPlan:
    """The runs of a comparison, and where they go; wrong names and places raise ConfigError."""

    def __init__(
        self,
        config: Config,
        methods: Sequence[str],
        seeds: Sequence[int] | None,
        out: Path | None,
        against: str | None = None,
    ) -> None:
        for name in methods:
            method_class(name)
        if against is not None and against not in methods:
            raise ConfigError(unknown("method to compare against", against, methods))
        self.directory = out or free_directory(f"compare-{config.data_name}")
        if self.directory.exists() and not self.directory.is_dir():
            raise StoreError(
                f"{self.directory} exists and is not a directory: choose another --out"
            )
        if aside := [key for key in config.method.model_fields_set if key != "name"]:
            log.warning(
                "ignored keys: [method] %s; put keys for one method into [compare.%s]",
                ", ".join(sorted(aside)),
                config.method.name,
            )
        self.config = config
        self.methods = list(dict.fromkeys(methods))
        self.against = against
        self.cells = cells_of(
            config, self.methods, [config.seed] if seeds is None else seeds, self.directory
        )

    def run(
        self, cells: Sequence[Cell], *, jobs: int, quiet: bool, select: Selector = uniform
    ) -> list[Outcome]:
        """Runs what is not finished; shows progress unless that is to be quiet."""
        cluster = self.config.runtime if self.config.runtime.fleet == "cluster" else None
        progress = None if quiet else Overview(cells)
        try:
            return run_cells(cells, jobs=jobs, watch=progress, cluster=cluster, select=select)
        finally:
            if progress is not None:
                progress.stop()

    def collected(self) -> list[Outcome]:
        """What others have run; an error if they have finished nothing."""
        outcomes = collected(self.cells)
        if all(outcome.run is None for outcome in outcomes):
            raise StoreError(f"no run of this comparison is finished in {self.directory}")
        return outcomes

    def comparison(self, outcomes: Sequence[Outcome]) -> Comparison:
        """The comparison of all finished runs; an error if no method has a result."""
        if all(outcome.run is None for outcome in outcomes):
            first = outcomes[0]
            again = f". Fix that, then run the same command with --out {self.directory}"
            raise error_of(first, f"{first.reason}{again if first.failed else ''}")
        return Comparison(outcomes, self.methods, self.config, self.directory, self.against)

    def complaint(self, comparison: Comparison) -> str:
        """The message about runs that failed, with the remedy."""
        broken = comparison.broken
        return (
            f"{len(broken)} of {len(comparison.outcomes)} runs failed: {', '.join(broken)}. Fix "
            f"that, then run the same command with --out {self.directory}"
        )


def error_of(outcome: Outcome, text: str) -> PfedesError:
    """The kind of error that a cell without a run stands for."""
    return FailedRunError(text) if outcome.failed else MethodError(text)


def named_methods(methods: str | Sequence[Chosen], config: Config) -> tuple[list[str], Config]:
    """Names of the methods, and the configuration with the hyper-parameters of objects."""
    if isinstance(methods, str):
        names = [name.strip() for name in methods.split(",")]
        return [each for name in names for each in (METHODS if name == "all" else [name])], config
    compared = dict(config.compare)
    names = []
    for method in methods:
        names.append(name := known_name(method))
        if isinstance(method, Method):
            keys = method.config.model_dump(exclude_defaults=True, exclude={"name"})
            compared[name] = {**keys, **compared.get(name, {})}
    return names, config.model_copy(update={"compare": compared})


def numbers(seeds: str | Sequence[int] | None) -> list[int] | None:
    """Seeds as numbers, whether given as such or as text; a ConfigError where they are none."""
    if seeds is None:
        return None
    try:
        parts = seeds.split(",") if isinstance(seeds, str) else seeds
        return list(dict.fromkeys(int(part) for part in parts))
    except ValueError:
        raise ConfigError(f"--seeds takes numbers separated by commas, found {seeds!r}") from None
