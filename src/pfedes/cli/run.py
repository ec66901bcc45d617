"""`pfedes run`: a new run."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._options import (
    Certificates,
    Clients,
    ClusterAddress,
    ConfigFile,
    Data,
    DataDir,
    Device,
    Json,
    Participants,
    Participation,
    Precision,
    Quiet,
    Rounds,
    Seed,
    Settings,
    Track,
    Workers,
    effective,
)
from pfedes.fleet.early import begin_early, likely_workers


def run(
    config: ConfigFile = None,
    *,
    method: Annotated[
        str | None,
        typer.Option(
            help="Method: pfedes, standalone, fedavg, fml, fedkd, lg_fedavg, fd, fedproto, "
            "fedssa, fedgh, fedre, fedtgp or fedmrl."
        ),
    ] = None,
    data: Data = None,
    data_dir: DataDir = None,
    clients: Clients = None,
    participation: Participation = None,
    rounds: Rounds = None,
    seed: Seed = None,
    workers: Workers = None,
    device: Device = None,
    precision: Precision = None,
    cluster: ClusterAddress = None,
    tls: Certificates = None,
    participants: Participants = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory to create; by default one below runs/.")
    ] = None,
    track: Track = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a federation. Without arguments: pFedES on handwritten digits, in about a minute.

    Stop it with Ctrl-C at any time; 'pfedes resume' continues after the last complete round.
    """
    begin_early(
        likely_workers(config, settings or (), workers=workers, cluster=cluster, clients=clients)
    )
    chosen = effective(
        config,
        settings,
        method=method,
        data=data,
        data_dir=data_dir,
        clients=clients,
        participation=participation,
        rounds=rounds,
        seed=seed,
        workers=workers,
        device=device,
        precision=precision,
        cluster=cluster,
        tls=tls,
        participants=participants,
    )
    from pfedes.cli._display import watch
    from pfedes.federation.loop import Federation

    watch(
        lambda listener: Federation(chosen, out=out, listener=listener),
        quiet=quiet,
        json=json,
        track=track,
    )
