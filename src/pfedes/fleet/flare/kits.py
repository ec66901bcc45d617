"""Certificates and kits: who may take part, made by FLARE's provisioning."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pfedes.config import Config
from pfedes.errors import StoreError
from pfedes.files import parse_json, read, write_atomically, writing
from pfedes.fleet.flare.keys import Request, sign
from pfedes.fleet.flare.layout import Layout
from pfedes.fleet.flare.policy import write_server_policy
from pfedes.fleet.flare.site import TERMS

PROJECT = "federation"
COORDINATOR = "coordinator"
ADMIN = "coordinator@pfedes.local"
BUILDERS: list[dict[str, Any]] = [
    {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder"},
    {
        "path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
        "args": {"config_folder": "config", "scheme": "tcp"},
    },
    {"path": "nvflare.lighter.impl.cert.CertBuilder"},
    {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
]
OWNER_ONLY = 0o700
ISSUED = "issued.json"
LISTED, ADMITTED = "listed", "admitted"


def provision(layout: Layout, config: Config) -> list[str]:
    """Makes what is not there yet: the authority, the server's and the admin's keys, and kits.

    Returns the names of those whose kits are new. Who was given a kit gets no other by this: a copy
    that was handed over and deleted stays deleted.
    """
    names = config.federation.participants
    given = issued(layout)
    new = [name for name in names if name not in given and not (layout.kits / name).is_dir()]
    if new or not (layout.server.is_dir() and layout.admin.is_dir()):
        _make(layout, config, new)
    _note_issued(layout, {**dict.fromkeys(names, LISTED), **given})
    return new


def provide(layout: Layout, config: Config, name: str, request: Request | None = None) -> Path:
    """A kit for one who was asked for by name, whether or not there was one before.

    With a request it has no key, and a certificate for the one that only the participant has.
    """
    kit = layout.kits / name
    if request is not None or not kit.is_dir():
        _make(layout, config, [name], request)
    _note_issued(layout, {**issued(layout), name: ADMITTED})
    return kit


def issued(layout: Layout) -> dict[str, str]:
    """Everybody for whom a kit was made, and whether they were listed or admitted."""
    path = layout.provision / ISSUED
    return dict(parse_json(path, read(path))) if path.exists() else {}


def _note_issued(layout: Layout, people: Mapping[str, str]) -> None:
    # The authority may be kept elsewhere while nobody needs it.
    if layout.provision.is_dir() and people != issued(layout):
        write_atomically(layout.provision / ISSUED, json.dumps(people).encode())


def _make(
    layout: Layout, config: Config, names: Sequence[str], request: Request | None = None
) -> None:
    """Whatever a place needs is in it before it appears there."""
    if layout.server.is_dir() and not layout.authority.exists():
        raise StoreError(
            f"{layout.provision} no longer holds the authority that signed the server's "
            "certificate: put it back, or move kits, server and admin away too"
        )
    with _provisioned(layout, config) as made:
        if not layout.server.is_dir():
            with _taking(made / config.federation.host, layout.server, COORDINATOR) as work:
                write_server_policy(work, layout.server)
        if not layout.admin.is_dir():
            with _taking(made / ADMIN, layout.admin, COORDINATOR):
                pass
        terms = config.model_copy(update={"participants": ()}).to_toml()
        for name in names:
            with _taking(made / name, layout.kits / name, name) as work:
                (work / TERMS).write_text(terms, encoding="utf-8")
                if request is not None:
                    startup = work / "startup"
                    (startup / "client.key").unlink()
                    (startup / "client.crt").write_bytes(sign(layout, _org(name), request))


@contextmanager
def _provisioned(layout: Layout, config: Config) -> Iterator[Path]:
    """Where FLARE has put what it made, keys and all; nothing of it stays there."""
    project = layout.provision / PROJECT
    with writing(layout.provision):
        layout.provision.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        layout.provision.chmod(OWNER_ONLY)
    _remove_stages(project)  # of a process that was killed: FLARE counts them, up to 99
    file = layout.provision / "project.yml"
    write_atomically(file, json.dumps(_project(config), indent=2).encode())
    done = subprocess.run(
        [sys.executable, "-c", "from nvflare.cli import main; main()",
         "provision", "--force", "-p", str(file), "-w", str(layout.provision)],
        capture_output=True,
        text=True,
        check=False,
        cwd=layout.provision,
    )  # fmt: skip
    try:
        stages = list(project.glob("prod_*"))
        if done.returncode or not stages:
            said = (done.stdout + done.stderr).strip().splitlines()
            why = [line for line in said if not line.startswith(("Hint:", "Code:"))]
            raise StoreError(f"FLARE's provisioning failed: {' '.join(why[-1:])}")
        yield stages[0]
    finally:
        _remove_stages(project)


def _remove_stages(project: Path) -> None:
    for stage in project.glob("prod_*"):
        shutil.rmtree(stage, ignore_errors=True)


def _project(config: Config) -> dict[str, Any]:
    terms = config.federation
    port = {"fed_learn_port": terms.port, "admin_port": terms.port}
    return {
        "api_version": 3,
        "name": PROJECT,
        "description": "a federation of pfedes",
        "participants": [
            {"name": terms.host, "type": "server", "org": COORDINATOR, **port},
            {"name": ADMIN, "type": "admin", "org": COORDINATOR, "role": "project_admin"},
            *({"name": name, "type": "client", "org": _org(name)} for name in terms.participants),
        ],
        "builders": BUILDERS,
    }


def _org(name: str) -> str:
    """FLARE's names of organisations have fewer letters than ours of participants."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


@contextmanager
def _taking(kit: Path, place: Path, organisation: str) -> Iterator[Path]:
    """Moves a kit into its place, whole and for its owner's eyes only; to be completed before."""
    with writing(place):
        place.parent.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        (kit / "startup" / "organisation.json").write_text(json.dumps(_org(organisation)))
        yield kit
        for path in [kit, *kit.rglob("*")]:
            path.chmod(OWNER_ONLY if path.is_dir() or path.suffix == ".sh" else 0o600)
        if place.exists():
            shutil.rmtree(place)
        kit.rename(place)
