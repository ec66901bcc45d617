"""`pfedes compare`: several methods on equal terms."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli.options import (
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
    Rounds,
    Settings,
    effective,
)


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
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the runs go; give it again to go on with them.")
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
        cluster=cluster,
        tls=tls,
    )
    from pfedes.cli.comparing import run_comparison

    run_comparison(
        chosen,
        methods,
        seeds,
        out,
        cell=cell,
        collect=collect,
        count=count,
        jobs=jobs,
        quiet=quiet,
        json=json,
    )
