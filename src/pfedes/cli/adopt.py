"""`pfedes adopt`: training with the extractor of a finished run."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._display import watch
from pfedes.cli._options import Json, MovedData, Quiet, Rounds, TrustCode
from pfedes.config.participant import read_participant
from pfedes.federation.adopt import adoption
from pfedes.federation.directory import free_directory
from pfedes.federation.loop import Federation
from pfedes.results.run import open_run


def adopt(
    run: Annotated[
        Path, typer.Argument(help="Run directory of a finished pFedES run.", show_default=False)
    ],
    participant: Annotated[
        Path,
        typer.Argument(
            metavar="PARTICIPANT.toml", help="Your participant file.", show_default=False
        ),
    ],
    *,
    rounds: Rounds = None,
    data_dir: MovedData = None,
    trust_code: TrustCode = False,
    out: Annotated[
        Path | None, typer.Option(help="Run directory to create; by default one below runs/.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train your own model against the extractor of a finished run.

    The extractor stays as it is, and nothing leaves this machine.
    """
    who = read_participant(participant)
    theirs = open_run(run, data_dir=data_dir, trust_code=trust_code)
    config = adoption(theirs, who, rounds)
    place = out or free_directory(f"adopt-{who.name}")
    watch(lambda listener: Federation(config, out=place, listener=listener), quiet=quiet, json=json)
