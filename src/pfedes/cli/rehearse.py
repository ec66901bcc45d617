"""`pfedes rehearse`: a whole federation on one machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from pfedes.cli._display import output
from pfedes.cli._narration import said
from pfedes.cli._options import ConfigFile, Data, Rounds, Settings, effective
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.config import parse_setting
from pfedes.deploy.hardening.version import check_version
from pfedes.deploy.rehearsal import ROUNDS, Rehearsal, rehearse_with
from pfedes.deploy.rehearsal import rehearse as rehearse_federation
from pfedes.errors import ConfigError, FailedRunError
from pfedes.formatting import percent
from pfedes.results.classwise import one_class_words

OURS = 3  # participants, where nothing says how many


def rehearse(
    config: ConfigFile = None,
    *,
    data: Data = None,
    participants: Annotated[
        int | None,
        typer.Option(
            min=1, max=20, help="Number of participants if no configuration is given; by default 3."
        ),
    ] = None,
    rounds: Rounds = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory to create; by default rehearsal.", show_default=False),
    ] = None,
    settings: Settings = None,
) -> None:
    """Try a federation on this machine, with certificates, processes and private models.

    Every participant gets a directory with its own model and data, which you can change. With a
    configuration, the participants are its own: one for each site of a natural partition, or those
    whose files it names. Three rounds, unless --rounds says otherwise.
    """
    show_rehearsal(config, data, participants, rounds, out or Path("rehearsal"), settings or [])


def show_rehearsal(
    file: Path | None,
    data: str | None,
    participants: int | None,
    rounds: int | None,
    out: Path,
    settings: Sequence[str],
) -> None:
    check_version()
    try:
        with interruptible():
            rehearsal = _rehearsed(file, data, participants, rounds, out.absolute(), settings)
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


def _rehearsed(
    file: Path | None,
    data: str | None,
    participants: int | None,
    rounds: int | None,
    out: Path,
    settings: Sequence[str],
) -> Rehearsal:
    if file is None and data is None:
        chosen = dict(map(parse_setting, settings))
        number = OURS if participants is None else participants
        return rehearse_federation(out, number, said, rounds=rounds, settings=chosen)
    if participants is not None:
        raise ConfigError("--participants is not for a configuration, which names its participants")
    rounds = ROUNDS if rounds is None else rounds
    return rehearse_with(out, effective(file, list(settings), data=data, rounds=rounds), said)
