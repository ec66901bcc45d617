"""Options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pfedes.config import Config


ConfigFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="[CONFIG.toml]",
        help="Configuration file; keys that it leaves out keep their defaults.",
    ),
]
Data = Annotated[
    str | None, typer.Option(help="Name of the data set; 'pfedes data list' lists them.")
]
DataDir = Annotated[Path | None, typer.Option(help="Directory of the data set, or its parent.")]
Clients = Annotated[int | None, typer.Option(help="Number of clients, N.")]
Participation = Annotated[float | None, typer.Option(help="Share of clients per round, C.")]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds, T.")]
Seed = Annotated[int | None, typer.Option(help="Random seed of the run.")]
Participants = Annotated[
    list[Path] | None,
    typer.Option(
        "--participant",
        metavar="FILE.toml",
        help="File of a participant with its own model and data; may be repeated.",
    ),
]
Device = Annotated[str | None, typer.Option(help="Device of the clients: auto, cpu, cuda or mps.")]
Precision = Annotated[
    str | None, typer.Option(help="Precision of local training: float32 or bf16.")
]
Workers = Annotated[
    int | None, typer.Option(help="Number of worker processes; by default one per core.")
]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="tls://HOST:PORT",
        help="Address of the Dask scheduler of the cluster to use.",
    ),
]
Certificates = Annotated[
    Path | None,
    typer.Option("--tls", metavar="DIR", help="Directory with ca.pem, cert.pem and key.pem."),
]
Jobs = Annotated[
    int, typer.Option(help="Number of runs at a time; 0 for one per core or node.", min=0)
]
CellNumber = Annotated[
    int | None,
    typer.Option("--cell", metavar="I", help="Number of the single run to do, counted from 1."),
]
Collect = Annotated[
    bool, typer.Option("--collect", help="Only collect the results of runs made with --cell.")
]
Count = Annotated[bool, typer.Option("--count", help="Only print the number of runs.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Value of a configuration key; may be repeated."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the run directory.")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Tracker that records the run: tensorboard, wandb (offline unless WANDB_MODE says "
        "otherwise), or module:Class; may be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print only the summary, as JSON.")]

RunDirectory = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run directory.", show_default=False)
]
ClientName = Annotated[
    str,
    typer.Option(metavar="NAME", help="Client whose model to use; optional if there is only one."),
]
MovedData = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Directory of the run's data, if it has moved."),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Import the code that the run names, even if none of your runs used it on this "
        "machine.",
    ),
]
Best = Annotated[
    bool, typer.Option("--best", help="Use the best round by validation instead of the last.")
]


def effective(file: Path | None, settings: list[str] | None, **options: Any) -> "Config":
    """The configuration of a command line."""
    from pfedes.config import configure, parse_setting

    return configure(file, settings=dict(map(parse_setting, settings or [])), **options)
