"""What `pfedes compare` shows while it works and when it is done."""

import json as json_module
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.table import Table as RichTable

from pfedes.cli.display import Spectator, output
from pfedes.cli.interrupted import Interrupted, interruptible
from pfedes.compare import cells_of, results_of, table_of
from pfedes.config import Config
from pfedes.errors import ConfigError, MethodError, StoreError
from pfedes.federation import free_directory
from pfedes.files import publish
from pfedes.methods import METHODS, method_class
from pfedes.report.formats import percent
from pfedes.sweep import Cell, Outcome, collected, nth, run_cells
from pfedes.table import Table

log = logging.getLogger(__name__)


def run_comparison(
    config: Config,
    methods: str,
    seeds: str | None,
    out: Path | None,
    *,
    cell: int | None,
    collect: bool,
    count: bool,
    jobs: int,
    quiet: bool,
    json: bool,
) -> None:
    """Runs all cells in sight of the user, prints the table and writes it in every format.

    Or no more of that than was asked for: one cell, or the table of what was done cell by cell.
    """
    check_part(cell, collect=collect, count=count, out=out)
    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",")]
    for name in names:
        method_class(name)
    source = config.data.source.partition(":")[0]
    directory = out or free_directory(f"compare-{source}")
    if directory.exists() and not directory.is_dir():
        raise StoreError(f"{directory} exists and is not a directory: choose another --out")
    if aside := [key for key in config.method.model_fields_set if key != "name"]:
        log.warning(
            "keys set aside: [method] %s; for one method use [compare.%s]",
            ", ".join(sorted(aside)),
            config.method.name,
        )
    numbers = [config.seed] if seeds is None else _numbers(seeds)
    names = list(dict.fromkeys(names))
    cells = cells_of(config, names, numbers, directory)
    if count:
        print(len(cells))
    elif cell is not None:
        finish_part(*_run([nth(cells, cell)], config, directory, jobs, silent=quiet or json))
    else:
        outcomes = (
            collected(cells)
            if collect
            else _run(cells, config, directory, jobs, silent=quiet or json)
        )
        _show(outcomes, names, config, directory, quiet=quiet, json=json)


def _run(
    cells: Sequence[Cell], config: Config, directory: Path, jobs: int, *, silent: bool
) -> list[Outcome]:
    cluster = config.runtime if config.runtime.fleet == "cluster" else None
    progress = None if silent else Overview(cells)
    try:
        with interruptible():
            return run_cells(cells, jobs=jobs, watch=progress, cluster=cluster)
    except KeyboardInterrupt:
        again = f"the same command with --out {directory}"
        raise Interrupted(f"stopped; {again} goes on") from None
    finally:
        if progress is not None:
            progress.stop()


def _show(
    outcomes: Sequence[Outcome],
    methods: Sequence[str],
    config: Config,
    directory: Path,
    *,
    quiet: bool,
    json: bool,
) -> None:
    if all(outcome.run is None for outcome in outcomes):
        raise MethodError(outcomes[0].reason)
    results = results_of(outcomes, methods)
    records = [result.record() for result in results]
    table = table_of(results, config.evaluate.targets)
    for ending, text in (
        ("md", table.to_markdown()),
        ("csv", table.to_csv()),
        ("tex", table.to_latex()),
        ("json", json_module.dumps(records, indent=2) + "\n"),
    ):
        publish(directory / f"compare.{ending}", text.encode())
    if json:
        print(json_module.dumps(records, indent=2))
    elif quiet:
        print(directory)
    else:
        _print(table, directory)


def check_part(cell: int | None, *, collect: bool, count: bool, out: Path | None) -> None:
    """Jobs that share the work must agree on where it goes, and do one thing each."""
    given = {"--cell": cell is not None, "--collect": collect, "--count": count}
    if len(chosen := [option for option, is_given in given.items() if is_given]) > 1:
        raise ConfigError(f"{' and '.join(chosen)} exclude each other: give one of them")
    if (cell is not None or collect) and out is None:
        raise ConfigError(f"{chosen[0]} needs --out, the directory that all cells share")


def finish_part(outcome: Outcome) -> None:
    """The end of `--cell`: where the run is, or why there is none."""
    if outcome.run is None:
        raise MethodError(f"{outcome.cell.name}: {outcome.reason}")
    print(outcome.cell.directory)


class Overview:
    """One bar over the rounds of all cells; elsewhere a line per finished cell."""

    def __init__(
        self, cells: Sequence[Cell], weight: Callable[[Cell], float] = lambda cell: 1.0
    ) -> None:
        self.cells = cells
        self.weights = {cell.name: weight(cell) for cell in cells}  # of a round
        self.spectator = Spectator()
        self._told: set[str] = set()

    def __call__(self, working: Mapping[str, int], outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.cell.name not in self._told:
                self._told.add(outcome.cell.name)
                self._tell(outcome)
        ended = {outcome.cell.name for outcome in outcomes}
        done = sum(self.weights[c.name] * c.rounds for c in self.cells if c.name in ended)
        done += sum(self.weights[name] * rounds for name, rounds in working.items())
        total = sum(self.weights[cell.name] * cell.rounds for cell in self.cells)
        names = ", ".join(working)
        runs = f"{len(ended)} of {len(self.cells)} runs"
        self.spectator.bar("all rounds", done, total, names, runs)

    def stop(self) -> None:
        self.spectator.stop()

    def _tell(self, outcome: Outcome) -> None:
        if outcome.run is None:
            text = outcome.reason
        else:
            summary = outcome.run.summary
            text = f"{percent(summary['mean_accuracy'])} in {summary['seconds']:.0f} s"
        self.spectator.console.print(f"{outcome.cell.name}: {text}", soft_wrap=True)


def _numbers(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise ConfigError(f"--seeds takes numbers separated by commas, found {text!r}") from None


def _print(table: Table, directory: Path) -> None:
    """At the width of a terminal: accuracies first, costs in a second table."""
    accuracies, costs = range(5), [0, *range(5, len(table.columns))]
    for part in (accuracies, costs):
        shown = RichTable(box=None, pad_edge=False)
        for index in part:
            heading = table.columns[index].replace(": ", "\n")
            shown.add_column(heading, justify="right" if index else "left")
        for row in table.rows:
            shown.add_row(*(row[index] for index in part))
        output().print(shown)
        output().print()
    for note in table.notes:
        output().print(note, soft_wrap=True)
    output().print(f"also as compare.md, .csv, .tex and .json in {directory}", soft_wrap=True)
