"""`pfedes audit`: attacks on what the clients of a run send."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pfedes.api.spectator import working
from pfedes.audit.auditor import audit as audit_of
from pfedes.cli._display import output, warned_before
from pfedes.cli._options import MovedData, RunDirectory, TrustCode
from pfedes.cli.report import write_reports
from pfedes.files import publish
from pfedes.formatting import clock, counted
from pfedes.results.findings import AUDIT_FILE, Audit, interval_words, score_words
from pfedes.results.run import open_run


def audit(
    run: RunDirectory,
    *,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.01, help="Minutes to spend; training shadow clients takes most of them."
        ),
    ] = 5,
    data_dir: MovedData = None,
    trust_code: TrustCode = False,
    json: Annotated[bool, typer.Option("--json", help="Print only audit.json.")] = False,
) -> None:
    """Attack what the clients of a run send, and report which attacks succeed.

    The attackers learn from shadow clients (the same configuration with other seeds) and guess the
    secrets of other shadow clients. "leak" means that they guess better than chance; "none found"
    does not prove that there is no leak. Writes audit.json and a new report.html into the run
    directory.
    """
    with warned_before(), working() as progress:
        opened = open_run(run, progress, data_dir=data_dir, trust_code=trust_code)
        found = audit_of(opened, minutes=minutes, progress=progress)
    text = found.model_dump_json(indent=2) + "\n"
    publish(opened.directory / AUDIT_FILE, text.encode())
    if (opened.directory / "report.html").exists():
        write_reports([run], None, data_dir, trust_code=trust_code)
    if json:
        print(text, end="")
    else:
        _print(found, opened.directory)


def _print(found: Audit, directory: Path) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("attack", "sees", "uploads", "score", "95 % interval", "chance level"):
        table.add_column(column, justify="right" if column == "score" else "left", overflow="fold")
    table.add_column("verdict", style="bold")
    for finding in found.findings:
        table.add_row(
            *(finding.attack, finding.sees, finding.situation),
            *(score_words(finding.value), interval_words(finding), score_words(finding.baseline)),
            finding.verdict,
        )
    output().print(table)
    output().print(
        f"{counted(found.clients, 'shadow client')} in {counted(found.cohorts, 'cohort')}, "
        f"{found.attacked} of them attacked, after round {found.round}; {clock(found.seconds)}",
        soft_wrap=True,
    )
    for note in dict.fromkeys(f"{f.attack}: {f.note}" for f in found.findings if f.note):
        output().print(note, soft_wrap=True)
    for cut in found.cut:
        output().print(f"left out for lack of time: {cut}", soft_wrap=True)
    output().print(str(directory / AUDIT_FILE), soft_wrap=True)
