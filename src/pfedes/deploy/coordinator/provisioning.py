"""Makes the certificates and kits of participants with FLARE's provisioning."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pfedes.config import Config
from pfedes.deploy.certificates import parse_certificate
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.flare_config import OWNER_ONLY, PROJECT
from pfedes.deploy.kit import write_kit
from pfedes.deploy.names import ADMIN
from pfedes.deploy.participant.keys import Request, read_authority, sign
from pfedes.deploy.revocation import read_revocations
from pfedes.errors import StoreError
from pfedes.files import beside, parse_json, read, write_atomically, writing

COORDINATOR = "coordinator"
AUTHORITY_DAYS = 3600  # FLARE's own would end after a year, and with it everybody's kit
BUILDERS: list[dict[str, Any]] = [
    {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder"},
    {
        "path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
        "args": {"config_folder": "config", "scheme": "tcp"},
    },
    {"path": "nvflare.lighter.impl.signature.SignatureBuilder"},
]
SERVER_KEYS = ("startup/rootCA.pem", "startup/server.crt", "startup/server.key")
ADMIN_FILES = ("startup/rootCA.pem", "startup/client.crt", "startup/client.key",
               "startup/fed_admin.json", "local/resources.json.default")  # fmt: skip
ISSUED = "issued.json"
LISTED, ADMITTED = "listed", "admitted"


def provision(layout: Layout, config: Config) -> list[str]:
    """Makes what is not there yet: the authority, the server's and the admin's keys, and kits.

    Returns the names of participants with new kits. A participant that was given a kit gets no
    other: a copy that was handed over and deleted stays deleted.
    """
    names = config.federation.participants
    given = issued(layout)
    new = [name for name in names if name not in given and not (layout.kits / name).is_dir()]
    if new or not (layout.server.is_dir() and layout.admin.is_dir()):
        _make(layout, config, new)
    _note_issued(layout, {**dict.fromkeys(names, LISTED), **given})
    return new


def provide(layout: Layout, config: Config, name: str, request: Request | None = None) -> Path:
    """Makes a kit for the named participant, whether or not there was one before.

    With a request the kit has no key, but a certificate for the participant's own key.
    """
    kit = layout.kits / name
    if request is not None or not kit.is_dir():
        _make(layout, config, [name], request)
    _note_issued(layout, {**issued(layout), name: ADMITTED})
    return kit


def issued(layout: Layout) -> dict[str, str]:
    """All participants for whom a kit was made, and whether they were listed or admitted."""
    path = layout.provision / ISSUED
    return dict(parse_json(path, read(path))) if path.exists() else {}


def forget_issued(layout: Layout, name: str) -> None:
    """Forgets that there was a kit for this name."""
    _note_issued(layout, {other: how for other, how in issued(layout).items() if other != name})


def _note_issued(layout: Layout, people: Mapping[str, str]) -> None:
    # The authority may be kept elsewhere while it is not needed.
    if layout.provision.is_dir() and people != issued(layout):
        write_atomically(layout.provision / ISSUED, json.dumps(people).encode())


def _make(
    layout: Layout, config: Config, names: Sequence[str], request: Request | None = None
) -> None:
    """Makes the directories; each appears only when it is complete."""
    if layout.server.is_dir() and not layout.authority.exists():
        raise StoreError(
            f"{layout.provision} no longer holds the authority that signed the server's "
            "certificate: put it back, or move kits, server and admin away too"
        )
    _forget_revoked(layout)
    with _provisioned(layout, config) as made:
        if not layout.server.is_dir():
            _keep(made / config.federation.host, layout.server, SERVER_KEYS)
        if not layout.admin.is_dir():
            _keep(made / ADMIN, layout.admin, ADMIN_FILES)
        for name in names:
            startup = made / name / "startup"
            key: bytes | None = read(startup / "client.key")
            certificate = read(startup / "client.crt")
            if request is not None:
                key, certificate = None, sign(layout, _org(name), request)
            with replacing(layout.kits / name) as kit:
                write_kit(kit, config, read(startup / "rootCA.pem"), certificate, key)
            keep_certificate(layout, name, certificate)


def keep_certificate(layout: Layout, name: str, certificate: bytes) -> None:
    """Remembers a certificate that is handed out: when it ends, and for which key it is."""
    with writing(layout.certificates):
        layout.certificates.mkdir(mode=OWNER_ONLY, exist_ok=True)
    write_atomically(layout.certificates / f"{name}.crt", certificate)


def update_authority(layout: Layout, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes what FLARE's provisioning remembers: certificates and keys by name."""
    tree = parse_json(layout.authority, read(layout.authority))
    before = json.dumps(tree)
    change(tree)
    if (after := json.dumps(tree)) != before:
        write_atomically(layout.authority, after.encode())


def _forget_revoked(layout: Layout) -> None:
    """Removes what FLARE keeps of an expelled participant: it would reuse the key."""
    revoked = read_revocations(layout.revoked)

    def forget(tree: dict[str, Any]) -> None:
        for name, kept in list(tree.items()):
            if isinstance(kept, dict) and revoked.refuses(parse_certificate(kept["cert"].encode())):
                del tree[name]

    if layout.authority.exists():
        update_authority(layout, forget)


@contextmanager
def _provisioned(layout: Layout, config: Config) -> Iterator[Path]:
    """The directory in which FLARE put keys and other files; it is removed afterwards."""
    project = layout.provision / PROJECT
    with writing(layout.provision):
        layout.provision.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
        layout.provision.chmod(OWNER_ONLY)
    _remove_stages(project)  # of a process that was killed: FLARE counts them, up to 99
    file = layout.provision / "project.yml"
    write_atomically(file, json.dumps(_project(layout, config), indent=2).encode())
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


def _project(layout: Layout, config: Config) -> dict[str, Any]:
    terms = config.federation
    days = AUTHORITY_DAYS
    if layout.authority.exists():  # FLARE insists that this is how long the present one is valid
        root = read_authority(layout).certificate
        days = (root.not_valid_after_utc - root.not_valid_before_utc).days
    authority = {
        "path": "nvflare.lighter.impl.cert.CertBuilder",
        "args": {"root_valid_days": days},
    }
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
        "builders": [*BUILDERS[:-1], authority, BUILDERS[-1]],  # signatures come last
    }


def _org(name: str) -> str:
    """FLARE's names of organisations have fewer letters than ours of participants."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def _keep(made: Path, place: Path, names: Sequence[str]) -> None:
    """Copies the needed files of those that FLARE made; it also writes scripts and policies."""
    with replacing(place) as work:
        for name in names:
            (work / name).parent.mkdir(mode=OWNER_ONLY, exist_ok=True)
            write_atomically(work / name, read(made / name))


@contextmanager
def replacing(place: Path) -> Iterator[Path]:
    """A directory for its owner's eyes only, to be filled; it takes the place of an earlier one."""
    with writing(place):
        place.parent.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
    with beside(place) as work, writing(place):
        work.chmod(OWNER_ONLY)
        yield work
        if place.exists():
            shutil.rmtree(place)
        work.rename(place)
