"""`pfedes compare`: several methods on equal terms."""

import json as json_module
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as RichTable

from pfedes.api.compare import ComparisonPlan, error_of, named_methods, numbers
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
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.config import Config
from pfedes.errors import ConfigError, FailedRunError
from pfedes.results.table import Table
from pfedes.sweep.cells import Cell, Outcome, nth


def compare(
    config: ConfigFile = None,
    *,
    methods: Annotated[
        str, typer.Option(help="Names of methods, separated by commas, or 'all'.")
    ] = "all",
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, separated by commas; by default the configured one.")
    ] = None,
    data: Data = None,
    data_dir: DataDir = None,
    clients: Clients = None,
    participation: Participation = None,
    rounds: Rounds = None,
    precision: Precision = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory of the runs; give it again to continue them.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Method to compare the others with, client by client; by default the most "
            "accurate baseline."
        ),
    ] = None,
    jobs: Jobs = 0,
    cluster: ClusterAddress = None,
    tls: Certificates = None,
    cell: CellNumber = None,
    collect: Collect = False,
    count: Count = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also write figures as PNG, SVG and PDF.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the directory.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print only the results, as JSON.")] = False,
) -> None:
    """Run several methods with the same clients, models and budget, and print one table.

    Each OUT/<method>/seed-<s>/ is an ordinary run directory. Finished runs are not repeated. Put
    keys for one method into [compare.NAME] of the configuration; a list of values there is a grid,
    from which validation accuracy chooses.
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
        figures=figures,
        jobs=jobs,
        quiet=quiet,
        json=json,
    )


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
    figures: bool,
    jobs: int,
    quiet: bool,
    json: bool,
) -> None:
    """Runs all cells with a progress display, prints the table and writes it in every format.

    Or no more of that than was asked for: one cell, or the table of what was done cell by cell.
    """
    check_part(cell, collect=collect, count=count, out=out)
    names, config = named_methods(methods, config)
    plan = ComparisonPlan(config, names, numbers(seeds), out, against)
    if count:
        print(len(plan.cells))
    elif cell is not None:
        finish_part(*_run(plan, [nth(plan.cells, cell)], jobs, quiet=quiet or json))
    else:
        outcomes = (
            plan.collected() if collect else _run(plan, plan.cells, jobs, quiet=quiet or json)
        )
        comparison = plan.comparison(outcomes)
        comparison.write(figures=figures)
        if json:
            print(json_module.dumps(comparison.records, indent=2))
        elif quiet:
            print(plan.directory)
        else:
            _print(comparison.table, plan.directory, figures=figures)
        if comparison.broken:
            raise FailedRunError(plan.complaint(comparison))


def _run(plan: ComparisonPlan, cells: Sequence[Cell], jobs: int, *, quiet: bool) -> list[Outcome]:
    try:
        with interruptible():
            return plan.run(cells, jobs=jobs, quiet=quiet)
    except KeyboardInterrupt:
        again = f"the same command with --out {plan.directory}"
        raise Interrupted(f"stopped; {again} continues") from None


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
        raise error_of(outcome, f"{outcome.cell.name}: {outcome.reason}")
    print(outcome.cell.directory)


def _print(table: Table, directory: Path, *, figures: bool) -> None:
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
    output().print(
        f"also as compare.md, .csv, .tex, .json and compare-numbers.csv in {directory}",
        soft_wrap=True,
    )
    if figures:
        output().print(f"figures: {directory / 'figures'}", soft_wrap=True)
