"""Options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pfedes.config import Config


ConfigFile = Annotated[
    Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings; the rest are defaults.")
]
Data = Annotated[str | None, typer.Option(help="Data set; 'pfedes data list' names them.")]
DataDir = Annotated[Path | None, typer.Option(help="The data set's directory or its parent.")]
Clients = Annotated[int | None, typer.Option(help="N, the number of clients.")]
Participation = Annotated[float | None, typer.Option(help="C, the share of clients in a round.")]
Rounds = Annotated[int | None, typer.Option(help="T, the number of rounds.")]
Seed = Annotated[int | None, typer.Option(help="Of all random streams.")]
Participants = Annotated[
    list[Path] | None,
    typer.Option(
        "--participant",
        metavar="FILE.toml",
        help="One who takes part with a model and data of their own; may be repeated.",
    ),
]
Device = Annotated[str | None, typer.Option(help="Where clients train: auto, cpu, cuda or mps.")]
Precision = Annotated[
    str | None, typer.Option(help="Of products in local training: float32 or bf16.")
]
Workers = Annotated[int | None, typer.Option(help="Worker processes; one per core if not given.")]
ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="tls://HOST:PORT",
        help="Work on the cluster of this Dask scheduler.",
    ),
]
Certificates = Annotated[
    Path | None,
    typer.Option("--tls", metavar="DIR", help="For --cluster: has ca.pem, cert.pem, key.pem."),
]
Jobs = Annotated[
    int, typer.Option(help="Runs at a time; 0 = one per core, or per node of a cluster.", min=0)
]
CellNumber = Annotated[
    int | None,
    typer.Option("--cell", metavar="I", help="Do the I-th run alone (1 is the first), no more."),
]
Collect = Annotated[
    bool, typer.Option("--collect", help="Run nothing: gather what was done cell by cell.")
]
Count = Annotated[bool, typer.Option("--count", help="Print the number of cells and leave.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting; may be repeated."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but the run directory.")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Tracker that follows the run: tensorboard, wandb (offline unless WANDB_MODE says "
        "otherwise), or module:Class; may be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, nothing else.")]

RunDirectory = Annotated[
    Path, typer.Argument(metavar="RUN", help="The run directory.", show_default=False)
]
ClientName = Annotated[
    str, typer.Option(metavar="NAME", help="Whose model; needless where there is but one.")
]
MovedData = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where the run's data lies now, if it has moved."),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Import the code that the run names, though no run of yours has used it here.",
    ),
]
Best = Annotated[
    bool, typer.Option("--best", help="After the best round by validation, not the last.")
]


def effective(file: Path | None, settings: list[str] | None, **options: Any) -> "Config":
    """The configuration of a command line."""
    from pfedes.config import configure, parse_setting

    return configure(file, settings=dict(map(parse_setting, settings or [])), **options)
