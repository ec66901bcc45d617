"""`pfedes renew`: new certificates before the old ones expire."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._narration import said
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.members import renew as renew_participant
from pfedes.deploy.coordinator.members import renew_authority, renew_server
from pfedes.deploy.hardening.version import check_version
from pfedes.deploy.kit import KEY
from pfedes.errors import ConfigError


def renew(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Participants whose certificates to renew.", show_default=False),
    ] = None,
    *,
    server: Annotated[
        bool, typer.Option("--server", help="Renew the coordinator's own certificates.")
    ] = False,
    authority: Annotated[
        bool, typer.Option("--authority", help="Renew the certificate of the authority.")
    ] = False,
    federation: Annotated[Path, typer.Option(help="Directory of the federation.")] = Path(
        "federation"
    ),
) -> None:
    """Renew certificates for existing keys; the run continues.

    'pfedes status' shows which certificates expire soon.
    """
    show_renewal(names or [], federation, server=server, authority=authority)


def show_renewal(names: list[str], directory: Path, *, server: bool, authority: bool) -> None:
    check_version()
    if not (names or server or authority):
        raise ConfigError("name the participants to renew, or give --server or --authority")
    layout = Layout(directory.absolute())
    if authority:  # first: no certificate is valid for longer than the authority's
        renew_authority(layout)
        said("the authority's certificate is renewed: renew all others before its old one expires")
    if server:
        renew_server(layout)
        said(
            "the coordinator's certificates are renewed: 'pfedes serve' uses them from its "
            "next start on"
        )
    for name in names:
        kit = renew_participant(layout, name)
        if (kit / KEY).exists():
            said(f"{kit} is for {name}: hand it over so that nobody else can read it")
        else:
            said(
                f"{kit} is for {name}, which copies it over its kit and keeps its key; it holds "
                "no secret"
            )
