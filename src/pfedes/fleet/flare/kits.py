"""Certificates and kits: who may take part, made by FLARE's provisioning."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pfedes.config import Config
from pfedes.errors import ConfigError, StoreError
from pfedes.files import write_atomically
from pfedes.fleet.flare.keys import sign_request
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


def provision(layout: Layout, config: Config) -> list[str]:
    """Makes what is not there yet: the authority, the server's and the admin's keys, and kits.

    Returns the names of those whose kits are new.
    """
    names = config.federation.participants
    missing = [name for name in names if not (layout.kits / name).is_dir()]
    if not missing and layout.server.is_dir():
        return []
    made = _run_provisioning(layout, config)
    if not layout.server.is_dir():
        _take(made / config.federation.host, layout.server, COORDINATOR)
        write_server_policy(layout.server)
        _take(made / ADMIN, layout.admin, COORDINATOR)
    for name in missing:
        _take(made / name, layout.kits / name, name)
        terms = config.model_copy(update={"participants": ()}).to_toml()
        (layout.kits / name / TERMS).write_text(terms, encoding="utf-8")
    return missing


def without_key(layout: Layout, name: str, request: Path) -> None:
    """Makes a kit one for a key that only the participant has."""
    startup = layout.kits / name / "startup"
    certificate = sign_request(layout, name, _org(name), request)
    (startup / "client.key").unlink(missing_ok=True)
    write_atomically(startup / "client.crt", certificate)


def _run_provisioning(layout: Layout, config: Config) -> Path:
    layout.provision.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
    layout.provision.chmod(OWNER_ONLY)
    file = layout.provision / "project.yml"
    file.write_text(json.dumps(_project(config), indent=2), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", "from nvflare.cli import main; main()",
         "provision", "--force", "-p", str(file), "-w", str(layout.provision)],
        capture_output=True,
        text=True,
        check=False,
        cwd=layout.provision,
    )  # fmt: skip
    stages = sorted((layout.provision / PROJECT).glob("prod_*"))
    if done.returncode or not stages:
        said = (done.stdout + done.stderr).strip().splitlines()
        why = [line for line in said if not line.startswith(("Hint:", "Code:"))]
        raise StoreError(f"FLARE's provisioning failed: {' '.join(why[-1:])}")
    return stages[-1]


def _project(config: Config) -> dict[str, Any]:
    terms = config.federation
    if not terms.host:
        raise ConfigError("federation.host must be a name by which participants find us")
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


def _take(kit: Path, place: Path, organisation: str) -> None:
    """Copies a kit whole, for its owner's eyes only."""
    place.parent.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
    work = place.with_name(f".{place.name}")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(kit, work)
    (work / "startup" / "organisation.json").write_text(json.dumps(_org(organisation)))
    for path in [work, *work.rglob("*")]:
        path.chmod(OWNER_ONLY if path.is_dir() or path.suffix == ".sh" else 0o600)
    work.rename(place)
