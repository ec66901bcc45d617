"""`pfedes resume`: going on with a run."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli.options import Certificates, ClusterAddress, Json, Quiet


def resume(
    directory: Annotated[Path, typer.Argument(help="The run directory.", show_default=False)],
    *,
    rounds: Annotated[
        int | None, typer.Option(help="A new total of rounds, to extend a run.")
    ] = None,
    from_round: Annotated[
        int | None, typer.Option(help="Go back to this round first, if it is still kept.")
    ] = None,
    cluster: ClusterAddress = None,
    tls: Certificates = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Go on with a run after its last complete round, as if it had never stopped."""
    from pfedes.cli.display import watch
    from pfedes.federation import Federation

    watch(
        lambda listener: Federation.resume(
            directory,
            rounds=rounds,
            from_round=from_round,
            cluster=cluster,
            tls=tls,
            listener=listener,
        ),
        quiet=quiet,
        json=json,
    )
