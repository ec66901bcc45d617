"""`pfedes request`: a key that never leaves the participant's machine."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._narration import said
from pfedes.config.participant import read_participant
from pfedes.deploy.hardening.version import check_version
from pfedes.deploy.participant.keys import write_request
from pfedes.deploy.participant.site_files import key_of


def request(
    participant: Annotated[
        Path,
        typer.Argument(
            metavar="PARTICIPANT.toml", help="Your participant file.", show_default=False
        ),
    ],
) -> None:
    """Create a private key, and a request that the coordinator signs with 'pfedes admit --request'.

    The key stays in the 'state' directory, where 'pfedes join' finds it. If there is a key already,
    only the request is made again.
    """
    show_request(participant)


def show_request(file: Path) -> None:
    check_version()
    participant = read_participant(file)
    request = Path(f"{participant.name}.csr")
    print = write_request(participant.name, key_of(participant), request)
    said(f"{request} is for the coordinator: 'pfedes admit {participant.name} --request {request}'")
    said(f"your fingerprint, for the others to compare and put into their [peers]: {print}")
