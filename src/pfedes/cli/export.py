"""`pfedes export`: a client's model as files that need no pfedes."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli.options import Best, ClientName, RunDirectory


def export(
    run: RunDirectory,
    *,
    client: ClientName = "",
    best: Best = False,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Also as ONNX; needs the extra 'onnx'.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A new directory; export-NAME, after the client, if not given.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write the model that a client has after training as files that need no pfedes.

    Weights as safetensors, a network in plain PyTorch to load them, and a model card that says what
    it was trained on, how well it does and how to use it. What is written is loaded again and
    compared before it appears.
    """
    from pfedes.cli.exporting import write_export

    write_export(run, client, best=best, onnx=onnx, out=out)
