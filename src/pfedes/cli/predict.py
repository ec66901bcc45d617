"""`pfedes predict`: what a client's model sees in pictures."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli.options import Best, ClientName, RunDirectory


def predict(
    run: RunDirectory,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Pictures of any kind, or folders: all pictures below. For a model of numbers "
            "(tables, signals): .npy or .csv.",
            show_default=False,
        ),
    ],
    *,
    client: ClientName = "",
    best: Best = False,
    top: Annotated[int, typer.Option(min=1, help="How many classes of each picture.")] = 1,
    csv: Annotated[bool, typer.Option("--csv", help="Print as CSV, nothing else.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON, nothing else.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write a file instead, FILE.csv or FILE.json.", show_default=False),
    ] = None,
) -> None:
    """Say what pictures show, by the model that a client has after training.

    Pictures are brought to the size of those it was trained on. If a file cannot be read, nothing
    is printed or written.
    """
    from pfedes.cli.predicting import print_predictions

    print_predictions(run, client, files, best=best, top=top, csv=csv, json=json, out=out)
