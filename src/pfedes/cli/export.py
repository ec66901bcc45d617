"""`pfedes export`: a client's model as files that need no pfedes."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.api.spectator import working
from pfedes.cli._display import facts as table
from pfedes.cli._display import output
from pfedes.cli._model import chosen_model
from pfedes.cli._options import Best, ClientName, MovedData, RunDirectory, TrustCode
from pfedes.export.model_files import check_place, export_model
from pfedes.formatting import percent
from pfedes.results.classwise import rows_of


def export(
    run: RunDirectory,
    *,
    client: ClientName = "",
    best: Best = False,
    data_dir: MovedData = None,
    trust_code: TrustCode = False,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write model.onnx as well; needs the extra 'onnx'.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory to create; by default export-CLIENT.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a client's trained model as files that work without pfedes.

    Weights as safetensors, a network in plain PyTorch to load them, and a model card that says what
    it was trained on, how well it does and how to use it. What is written is loaded again and
    compared before it appears.
    """
    write_export(
        run, client, best=best, data_dir=data_dir, trust_code=trust_code, onnx=onnx, out=out
    )


def write_export(
    run: Path,
    client: str,
    *,
    best: bool,
    data_dir: Path | None,
    trust_code: bool,
    onnx: bool,
    out: Path | None,
) -> None:
    if out is not None:
        check_place(out)  # before data is opened, which may take a while
    with working() as progress:
        personal = chosen_model(
            run, client, best=best, data_dir=data_dir, trust_code=trust_code, progress=progress
        )
        facts = personal.facts
        place = out or Path(f"export-{facts.client}")
        export_model(personal, place, onnx=onnx, progress=progress)
    chosen = ", the best by validation" if facts.best else ""
    rows = {
        "model": f"{facts.architecture} of {facts.client} after round {facts.round}{chosen}",
        "accuracy": f"{percent(facts.scores.accuracy)} of its own test samples",
        **rows_of(facts.scores, personal.class_names),
        "files": ", ".join(sorted(path.name for path in place.iterdir())),
        "how to use it": str(place / "README.md"),
    }
    output().print(table(rows))
