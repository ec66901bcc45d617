"""`pfedes resume`: continuing a run."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._options import (
    Certificates,
    ClusterAddress,
    Json,
    MovedData,
    Quiet,
    Track,
    TrustCode,
)
from pfedes.fleet.early import begin_early, likely_workers


def resume(
    directory: Annotated[Path, typer.Argument(help="Run directory.", show_default=False)],
    *,
    rounds: Annotated[
        int | None, typer.Option(help="New total number of rounds, to extend a run.")
    ] = None,
    from_round: Annotated[
        int | None,
        typer.Option(help="Round to go back to before continuing; it must still be kept."),
    ] = None,
    cluster: ClusterAddress = None,
    tls: Certificates = None,
    data_dir: MovedData = None,
    trust_code: TrustCode = False,
    track: Track = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Continue a run after its last complete round.

    The result is that of an uninterrupted run, bit for bit.
    """
    begin_early(likely_workers(directory / "config.toml", (), cluster=cluster))
    from pfedes.cli._display import watch
    from pfedes.federation.loop import Federation

    watch(
        lambda listener: Federation.resume(
            directory,
            rounds=rounds,
            from_round=from_round,
            cluster=cluster,
            tls=tls,
            data_dir=data_dir,
            trust_code=trust_code,
            listener=listener,
        ),
        quiet=quiet,
        json=json,
        track=track,
    )
