"""`pfedes predict`: labels of files by a client's model."""

import json as json_module
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table as RichTable

from pfedes.api.spectator import working
from pfedes.cli._display import output
from pfedes.cli._model import chosen_model
from pfedes.cli._options import Best, ClientName, MovedData, RunDirectory, TrustCode
from pfedes.errors import ConfigError, DiskError
from pfedes.files import publish
from pfedes.formatting import listed, percent, plain
from pfedes.results.classwise import one_class_words
from pfedes.results.personal import PersonalModel, Prediction
from pfedes.results.table import Table

log = logging.getLogger(__name__)


def predict(
    run: RunDirectory,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Images, or folders with images. For a model of numbers "
            "(tables, signals): .npy or .csv; of a table with named columns: .csv or .parquet.",
            show_default=False,
        ),
    ],
    *,
    client: ClientName = "",
    best: Best = False,
    data_dir: MovedData = None,
    trust_code: TrustCode = False,
    top: Annotated[int, typer.Option(min=1, help="Number of classes to print per input.")] = 1,
    columns_by_position: Annotated[
        bool,
        typer.Option(
            "--columns-by-position",
            help="Read CSV files without a header; their columns must be in the order of training.",
        ),
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print only CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write instead of printing, .csv or .json.", show_default=False),
    ] = None,
) -> None:
    """Predict labels for images or rows with a client's trained model.

    Images are resized to the size of the training images. If a file cannot be read, nothing is
    printed or written.
    """
    print_predictions(
        run,
        client,
        files,
        best=best,
        data_dir=data_dir,
        trust_code=trust_code,
        top=top,
        columns_by_position=columns_by_position,
        csv=csv,
        json=json,
        out=out,
    )


Form = Literal["table", "csv", "json"]

DIGITS = 6  # of a probability
MOST_CLASSES = 6


def print_predictions(
    run: Path,
    client: str,
    files: Sequence[Path],
    *,
    best: bool,
    data_dir: Path | None,
    trust_code: bool,
    top: int,
    columns_by_position: bool,
    csv: bool,
    json: bool,
    out: Path | None,
) -> None:
    form = _form(csv, json, out)
    with working() as progress:
        personal = chosen_model(
            run, client, best=best, data_dir=data_dir, trust_code=trust_code, progress=progress
        )
        found = personal.predict(
            files, top=top, columns_by_position=columns_by_position, progress=progress
        )
    if form == "table":
        _print_table(personal, found)
        return
    if warning := _one_class(personal):
        log.warning("the model %s", plain(warning))
    flagged = personal.table is not None
    text = _as_csv(found, flagged) if form == "csv" else _as_json(found, flagged)
    if out is None:
        print(text, end="")
    else:
        publish(out, text.encode())
        output().print(str(out), soft_wrap=True)


def _form(csv: bool, json: bool, out: Path | None) -> Form:
    """The output format, or an error if the options contradict each other."""
    if csv and json:
        raise ConfigError("--csv and --json: give one of them")
    asked: Form = "csv" if csv else "json" if json else "table"
    if out is None:
        return asked
    ending = out.suffix.lower()
    if ending not in (".csv", ".json"):
        raise ConfigError(f"--out {out}: its name must end with .csv or .json")
    if asked not in ("table", ending[1:]):
        raise ConfigError(f"--{asked} --out {out}: the two do not agree")
    if out.is_dir() or not out.parent.is_dir():
        raise DiskError(f"cannot write {out}: it must be a file in a directory that exists")
    return "csv" if ending == ".csv" else "json"


def _print_table(personal: PersonalModel, found: Sequence[Prediction]) -> None:
    table = RichTable(box=None, pad_edge=False)
    table.add_column("picture" if personal.sees_pictures else "row", overflow="fold")
    table.add_column("label", overflow="fold")
    table.add_column("probability", justify="right")
    if personal.table is not None:
        table.add_column("unusual", overflow="fold")
    before = None
    for file, label, probability, flags in found:
        again = file == before
        row = ["" if again else plain(file), plain(label), percent(probability)]
        if personal.table is not None:
            row.append("" if again else plain("; ".join(flags)))
        table.add_row(*row)
        before = file
    output().print(table)
    facts = personal.facts
    known, all_of_them = facts.classes, len(personal.class_names)
    warning = _one_class(personal)
    output().print(
        f"by {facts.client}'s {facts.architecture} after round {facts.round}: "
        f"{percent(facts.scores.accuracy)} right on its own test samples; "
        f"{f'the model {plain(warning)}; ' if warning else ''}trained on "
        f"{len(known)} of {all_of_them} classes ({plain(listed(known, MOST_CLASSES))})",
        soft_wrap=True,
    )


def _one_class(personal: PersonalModel) -> str:
    return one_class_words(personal.facts.scores.test, personal.class_names)


def _as_csv(found: Sequence[Prediction], flagged: bool) -> str:
    rows = [
        [_text(p.file), _text(p.label), f"{p.probability:.{DIGITS}f}", _text("; ".join(p.flags))]
        for p in found
    ]
    columns = len(Prediction._fields) if flagged else len(Prediction._fields) - 1
    return Table(Prediction._fields[:columns], [row[:columns] for row in rows]).to_csv()


def _as_json(found: Sequence[Prediction], flagged: bool) -> str:
    rows = [p._replace(probability=round(p.probability, DIGITS))._asdict() for p in found]
    if not flagged:
        for row in rows:
            del row["flags"]
    return json_module.dumps(rows, indent=2) + "\n"


def _text(name: str) -> str:
    """Names of files may hold bytes that are no text."""
    return name.encode(errors="replace").decode()
