"""`pfedes rehearse`: a whole federation on one machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from pfedes.cli._display import output
from pfedes.cli._narration import said
from pfedes.cli._options import Rounds, Settings
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.config import parse_setting
from pfedes.deploy.hardening.version import check_version
from pfedes.deploy.rehearsal import rehearse as rehearse_federation
from pfedes.errors import FailedRunError
from pfedes.formatting import percent
from pfedes.results.classwise import one_class_words


def rehearse(
    *,
    participants: Annotated[int, typer.Option(min=1, max=20, help="Number of participants.")] = 3,
    rounds: Rounds = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory to create; by default rehearsal.", show_default=False),
    ] = None,
    settings: Settings = None,
) -> None:
    """Try a federation on this machine, with certificates, processes and private models.

    Every participant gets a directory with its own model and data, which you can change.
    """
    show_rehearsal(participants, rounds, out or Path("rehearsal"), settings or [])


def show_rehearsal(
    participants: int, rounds: int | None, out: Path, settings: Sequence[str]
) -> None:
    check_version()
    chosen = dict(map(parse_setting, settings))
    try:
        with interruptible():
            rehearsal = rehearse_federation(
                out.absolute(), participants, said, rounds=rounds, settings=chosen
            )
    except KeyboardInterrupt:
        raise Interrupted("stopped") from None
    columns = ("participant", "model", "before", "after", "balanced", "sent", "note")
    table = Table(*columns, box=None, pad_edge=False)
    for name, model, seat in rehearsal.people:
        record = seat.record()
        if record is None or record.scores is None:
            table.add_row(name, model, *["-"] * (len(columns) - 2))
            continue
        sent = sum(line["floats"] for line in seat.sent())
        before = percent(record.before.accuracy if record.before is not None else None)
        after = percent(record.scores.accuracy)
        balanced = percent(record.scores.by("balanced_accuracy"))
        note = escape(one_class_words(record.scores.test, seat.config.federation.classes))
        table.add_row(name, model, before, after, balanced, f"{sent:,} numbers", note)
    output().print(table)
    output().print(f"report: {rehearsal.run.directory / 'report.html'}", soft_wrap=True)
    if rehearsal.lost:
        raise FailedRunError("; ".join(rehearsal.lost))
