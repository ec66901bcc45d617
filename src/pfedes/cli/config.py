"""`pfedes config`: all settings."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._options import Settings, effective


def config(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG.toml]", help="Configuration file to start from."),
    ] = None,
    *,
    method: Annotated[str | None, typer.Option(help="Method of which to show the keys.")] = None,
    settings: Settings = None,
) -> None:
    """Print every setting with its value and meaning, as TOML to edit."""
    print(effective(file, settings, method=method).to_commented_toml(), end="")
