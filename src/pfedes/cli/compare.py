"""`pfedes compare`: several methods on equal terms."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli.options import (
    Clients,
    ConfigFile,
    Data,
    DataDir,
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
    jobs: Annotated[int, typer.Option(help="Runs at a time; 0 = one per core.", min=0)] = 0,
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
    )
    from pfedes.cli.comparing import run_comparison

    run_comparison(chosen, methods, seeds, out, jobs=jobs, quiet=quiet, json=json)
