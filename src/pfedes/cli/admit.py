"""`pfedes admit`: letting somebody in who was not there at the beginning."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._narration import said
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.serve import admit as admit_participant
from pfedes.deploy.hardening.version import check_version


def admit(
    name: Annotated[str, typer.Argument(help="Who.", show_default=False)],
    *,
    federation: Annotated[
        Path, typer.Option("--federation", help="The federation's directory.")
    ] = Path("federation"),
    request: Annotated[
        Path | None,
        typer.Option(
            "--request",
            metavar="FILE.csr",
            help="What 'pfedes request' made: the kit is then for a key that only they have.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Let a revoked participant back in, with a new key and certificate."
        ),
    ] = False,
) -> None:
    """Make a kit for somebody new, also while the federation runs.

    Who joins with it takes part from the next round on.
    """
    show_admission(name, federation, request, again=again)


def show_admission(name: str, directory: Path, request: Path | None, *, again: bool) -> None:
    check_version()
    kit = admit_participant(Layout(directory.absolute()), name, request, again=again)
    secret = "" if request is not None else ": hand it over so that nobody else sees it"
    said(f"{kit} is for {name}{secret}")
