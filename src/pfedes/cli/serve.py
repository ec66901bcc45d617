"""`pfedes serve`: coordinating a federation across machines."""

from pathlib import Path
from typing import Annotated

import typer

from pfedes.cli._federation import show_end
from pfedes.cli._narration import said, silent
from pfedes.cli._options import Json, Quiet
from pfedes.cli._signals import Interrupted, interruptible
from pfedes.config import configure
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.serve import Serving, prepare
from pfedes.deploy.hardening.version import check_version


def serve(
    federation: Annotated[
        Path,
        typer.Argument(
            metavar="FEDERATION.toml",
            help="Configuration that names the participants under [federation].",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="Directory of the federation.")] = Path("federation"),
    kits_only: Annotated[
        bool, typer.Option("--kits-only", help="Make the participants' kits and exit.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Create kits, start the server, wait for the participants, and run all rounds.

    All files are in one directory. Run the command again to continue where it stopped.
    """
    show_serving(federation, out, kits_only=kits_only, quiet=quiet, json=json)


def show_serving(file: Path, out: Path, *, kits_only: bool, quiet: bool, json: bool) -> None:
    check_version()
    say = silent if quiet or json else said
    layout = Layout(out.absolute())
    if not kits_only:
        layout.refuse_if_served()
    for name in prepare(layout, configure(file)):
        say(f"{layout.kits / name} is for {name}: hand it over so that nobody else can read it")
    if kits_only:
        return
    try:
        with interruptible():
            run = Serving(layout, say).run()
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; 'pfedes serve {file} --out {out}' continues") from None
    show_end(run, quiet=quiet, json=json)
