"""`pfedes compare`: several methods on equal terms."""

import json as json_module
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

from pfedes.cli._display import output
from pfedes.cli._options import (
    CellNumber,
    Certificates,
    Clients,
    ClusterAddress,
    Collect,
    ConfigFile,
    Count,
    Data,
    DataDir,
    Jobs,
    Participation,
    Precision,
    Rounds,
    Settings,
    effective,
)
from pfedes.cli._overview import Overview, _numbers
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.config import Config
from pfedes.errors import ConfigError, FailedRunError, MethodError, PfedesError, StoreError, unknown
from pfedes.federation.loop import free_directory
from pfedes.files import publish
from pfedes.methods import METHODS, method_class
from pfedes.results.table import Table
from pfedes.sweep.cells import Cell, Outcome, collected, nth
from pfedes.sweep.compare import cells_of, records_of, reference_of, results_of, table_of
from pfedes.sweep.execute import run_cells


def compare(
    config: ConfigFile = None,
    *,
    methods: Annotated[str, typer.Option(help="Names separated by commas, or 'all'.")] = "all",
    seeds: Annotated[
        str | None, typer.Option(help="Numbers separated by commas; else the configured seed.")
    ] = None,
    data: Data = None,
    data_dir: DataDir = None,
    clients: Clients = None,
    participation: Participation = None,
    rounds: Rounds = None,
    precision: Precision = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the runs go; give it again to go on with them.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Method that the others are compared with, client by client; the most accurate "
            "baseline if not given."
        ),
    ] = None,
    jobs: Jobs = 0,
    cluster: ClusterAddress = None,
    tls: Certificates = None,
    cell: CellNumber = None,
    collect: Collect = False,
    count: Count = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing but the directory.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON only.")] = False,
) -> None:
    """Run several methods with the same clients, models and budget; one table.

    OUT/<method>/seed-<s>/ are ordinary run directories. What is finished is not run again. Keys for
    one method stand in [compare.NAME] of the configuration; a list of values there is a grid, from
    which validation accuracy chooses.
    """
    chosen = effective(
        config,
        settings,
        data=data,
        data_dir=data_dir,
        clients=clients,
        participation=participation,
        rounds=rounds,
        precision=precision,
        cluster=cluster,
        tls=tls,
    )

    run_comparison(
        chosen,
        methods,
        seeds,
        out,
        against=against,
        cell=cell,
        collect=collect,
        count=count,
        jobs=jobs,
        quiet=quiet,
        json=json,
    )


log = logging.getLogger(__name__)


def run_comparison(
    config: Config,
    methods: str,
    seeds: str | None,
    out: Path | None,
    *,
    against: str | None,
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
    if against is not None and against not in names:
        raise ConfigError(unknown("method to compare against", against, names))
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
        _show(outcomes, names, config, directory, against, quiet=quiet, json=json)


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
    against: str | None,
    *,
    quiet: bool,
    json: bool,
) -> None:
    if all(outcome.run is None for outcome in outcomes):
        raise _error_of(outcomes[0], outcomes[0].reason)
    results = results_of(outcomes, methods)
    reference = reference_of(results, against)
    records = records_of(results, reference)
    table = table_of(results, config.evaluate.targets, reference)
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
    if broken := [outcome.cell.name for outcome in outcomes if outcome.broken]:
        raise FailedRunError(
            f"{len(broken)} of {len(outcomes)} runs failed: {', '.join(broken)}. Fix that, then "
            f"run the same command with --out {directory}"
        )


def _error_of(outcome: Outcome, text: str) -> PfedesError:
    return FailedRunError(text) if outcome.failed else MethodError(text)


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
        raise _error_of(outcome, f"{outcome.cell.name}: {outcome.reason}")
    print(outcome.cell.directory)


def _print(table: Table, directory: Path) -> None:
    """At the width of a terminal: accuracies first, then differences, then costs."""
    first, last = (list(table.columns).index(name) for name in ("best selected", "floats"))
    parts = [range(first + 1), [0, *range(first + 1, last)], [0, *range(last, len(table.columns))]]
    for part in parts:
        if len(part) < 2:
            continue  # there is nothing to compare
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
