"""`pfedes adopt`: joining late."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli.options import Json, Quiet, Rounds


def adopt(
    run: Annotated[Path, typer.Argument(help="A finished run of pfedes.", show_default=False)],
    participant: Annotated[
        Path, typer.Argument(metavar="PARTICIPANT.toml", help="Who joins.", show_default=False)
    ],
    *,
    rounds: Rounds = None,
    out: Annotated[
        Path | None, typer.Option(help="The new run; a directory below runs/ if not given.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a model of one's own against the extractor of a finished run.

    For those who come when the others have gone: the extractor stays as it is, and nothing leaves.
    """
    from pfedes.adopt import adoption
    from pfedes.cli.display import watch
    from pfedes.federation import Federation, free_directory
    from pfedes.participant import read_participant
    from pfedes.run import open_run

    who = read_participant(participant)
    config = adoption(open_run(run), who, rounds)
    place = out or free_directory(f"adopt-{who.name}")
    watch(lambda listener: Federation(config, out=place, listener=listener), quiet=quiet, json=json)
