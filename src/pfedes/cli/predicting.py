"""What `pfedes predict` does: predicts everything, then shows or writes it."""

import json as json_module
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.table import Table as RichTable

from pfedes.cli.choosing import chosen_model
from pfedes.cli.display import output, working
from pfedes.errors import ConfigError, DiskError
from pfedes.files import publish
from pfedes.personal import Personal, Prediction
from pfedes.report.formats import listed, percent
from pfedes.table import Table

Form = Literal["table", "csv", "json"]

DIGITS = 6  # of a probability
MOST_CLASSES = 6


def print_predictions(
    run: Path,
    client: str,
    files: Sequence[Path],
    *,
    best: bool,
    top: int,
    csv: bool,
    json: bool,
    out: Path | None,
) -> None:
    form = _form(csv, json, out)
    with working() as progress:
        personal = chosen_model(run, client, best=best, progress=progress)
        found = personal.predict(files, top=top, progress=progress)
    if form == "table":
        _print_table(personal, found)
        return
    text = _as_csv(found) if form == "csv" else _as_json(found)
    if out is None:
        print(text, end="")
    else:
        publish(out, text.encode())
        output().print(str(out), soft_wrap=True)


def _form(csv: bool, json: bool, out: Path | None) -> Form:
    """What is asked for, or the line that says why that cannot be."""
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


def _print_table(personal: Personal, found: Sequence[Prediction]) -> None:
    table = RichTable(box=None, pad_edge=False)
    table.add_column("picture" if personal.sees_pictures else "row", overflow="fold")
    table.add_column("label", overflow="fold")
    table.add_column("probability", justify="right")
    before = None
    for file, label, probability in found:
        shown = "" if file == before else _printable(file)
        table.add_row(shown, _printable(label), percent(probability))
        before = file
    output().print(table)
    facts = personal.facts
    known, all_of_them = facts.classes, len(personal.class_names)
    output().print(
        f"by {facts.client}'s {facts.architecture} after round {facts.round}: "
        f"{percent(facts.scores.accuracy)} right on its own test samples; trained on "
        f"{len(known)} of {all_of_them} classes ({_printable(listed(known, MOST_CLASSES))})",
        soft_wrap=True,
    )


def _as_csv(found: Sequence[Prediction]) -> str:
    rows = [[_text(f), _text(label), f"{value:.{DIGITS}f}"] for f, label, value in found]
    return Table(Prediction._fields, rows).to_csv()


def _as_json(found: Sequence[Prediction]) -> str:
    rows = [p._replace(probability=round(p.probability, DIGITS))._asdict() for p in found]
    return json_module.dumps(rows, indent=2) + "\n"


def _text(name: str) -> str:
    """Names of files may hold bytes that are no text."""
    return name.encode(errors="replace").decode()


def _printable(name: str) -> str:
    """What a terminal shows, and does not obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in name)
