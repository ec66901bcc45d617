"""`pfedes revoke`: expelling a participant."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._narration import said
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.members import revoke as revoke_participant
from pfedes.deploy.hardening.version import check_version


def revoke(
    name: Annotated[
        str, typer.Argument(help="Name of the participant to expel.", show_default=False)
    ],
    *,
    federation: Annotated[Path, typer.Option(help="Directory of the federation.")] = Path(
        "federation"
    ),
) -> None:
    """Expel a participant: its kit and all copies of it stop working at once.

    Its open connections are closed, and nothing that it sends counts any more. The rounds that it
    took part in stay part of the run. 'pfedes admit NAME --again' lets it back in.
    """
    show_revocation(name, federation)


def show_revocation(name: str, directory: Path) -> None:
    check_version()
    revoke_participant(Layout(directory.absolute()), name)
    said(f"{name} is expelled: its kit and all copies of it are refused from now on")
