"""What `pfedes export` does, and what it says about it."""

from pathlib import Path

from pfedes.cli.choosing import chosen_model
from pfedes.cli.display import facts as table
from pfedes.cli.display import output, working
from pfedes.export import check_place
from pfedes.report.formats import percent


def write_export(run: Path, client: str, *, best: bool, onnx: bool, out: Path | None) -> None:
    if out is not None:
        check_place(out)  # before data is opened, which may take a while
    with working() as progress:
        personal = chosen_model(run, client, best=best, progress=progress)
        facts = personal.facts
        place = out or Path(f"export-{facts.client}")
        personal.export(place, onnx=onnx, progress=progress)
    chosen = ", the best by validation" if facts.best else ""
    rows = {
        "model": f"{facts.architecture} of {facts.client} after round {facts.round}{chosen}",
        "accuracy": f"{percent(facts.scores.accuracy)} of its own test samples",
        "files": ", ".join(sorted(path.name for path in place.iterdir())),
        "how to use it": str(place / "README.md"),
    }
    output().print(table(rows))
