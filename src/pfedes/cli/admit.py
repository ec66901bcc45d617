"""`pfedes admit`: a kit for a participant that joins an existing federation."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._narration import said
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.serve import admit as admit_participant
from pfedes.deploy.hardening.version import check_version


def admit(
    name: Annotated[
        str, typer.Argument(help="Name of the participant to admit.", show_default=False)
    ],
    *,
    federation: Annotated[
        Path, typer.Option("--federation", help="Directory of the federation.")
    ] = Path("federation"),
    request: Annotated[
        Path | None,
        typer.Option(
            "--request",
            metavar="FILE.csr",
            help="Request made by 'pfedes request', for a kit without a key.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Let a revoked participant back in, with a new key and certificate."
        ),
    ] = False,
) -> None:
    """Make a kit for a new participant, also while the federation runs.

    The participant takes part from the next round on.
    """
    show_admission(name, federation, request, again=again)


def show_admission(name: str, directory: Path, request: Path | None, *, again: bool) -> None:
    check_version()
    kit = admit_participant(Layout(directory.absolute()), name, request, again=again)
    secret = "" if request is not None else ": hand it over so that nobody else can read it"
    said(f"{kit} is for {name}{secret}")
