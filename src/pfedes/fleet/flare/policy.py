"""The files by which a site and a server say what FLARE may do there."""

import json
from pathlib import Path
from typing import Any

from pfedes.config import Config
from pfedes.consent import Consent
from pfedes.files import parse_json, read, write_atomically
from pfedes.fleet.flare.site import PARTICIPANT
from pfedes.fleet.guest import own_config
from pfedes.fleet.host import reply_spec
from pfedes.participant import Participant
from pfedes.payload import Max, TensorSpec
from pfedes.simulation import Simulation

SITE_CLASS = "pfedes.fleet.flare.executor.Site"
FILTER_CLASS = "pfedes.fleet.flare.filter.OnlyAgreed"
SERVER_CLASS = "pfedes.fleet.flare.controller.Coordinator"
LOGGING = "nvflare.app_common.logging."  # FLARE puts a log streamer of its own into every job

FRAME = ["kind", "client", "reason", "versions"]
SCORES = ["val_correct", "val_total", "test_correct", "test_total"]
UNASKED = ["card", "noted"]  # answers to an enrolment and to the last notice
ROLES = ("project_admin", "org_admin", "lead", "member")
COORDINATOR_MAY = (
    "submit_job", "clone_job", "manage_job", "download_job", "view", "operate",
)  # fmt: skip
HEARTBEAT = 30  # seconds without a sign until FLARE's server takes a site for gone


def write_site_policy(kit: Path, participant: Participant, terms: Config) -> None:
    """What this site allows, from the participant's own file and nothing else."""
    local = kit / "local"
    resources = _defaults(local)
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [SITE_CLASS, FILTER_CLASS, LOGGING]
    resources["allow_log_streaming"] = False  # logs name files, and perhaps data
    resources["components"] = [
        part for part in resources["components"] if part["id"] != "site_log_streamer"
    ]
    _write(local / "resources.json", resources)
    _write(local / "authorization.json", _authorization())
    _write(local / "privacy.json", _privacy(participant, terms))
    _write(kit / PARTICIPANT, participant.model_dump(mode="json"))


def write_server_policy(kit: Path, place: Path) -> None:
    """Jobs and snapshots stay in the server's place, and jobs bring no code."""
    local = kit / "local"
    resources = _defaults(local)
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [SERVER_CLASS, LOGGING]
    resources["servers"][0]["heart_beat_timeout"] = HEARTBEAT
    storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
    storage["root_dir"] = str((place / "snapshots").absolute())
    for part in resources["components"]:
        if part["id"] == "job_manager":
            part["args"]["uri_root"] = str((place / "jobs").absolute())
    _write(local / "resources.json", resources)
    _write(local / "authorization.json", _authorization())


def _authorization() -> dict[str, Any]:
    """The coordinator may submit and see jobs; nobody may ship code or run shell commands."""
    nothing = {"byoc": "none", "shell_commands": "none", "server-predeployed-flwr": "none"}
    coordinator = dict.fromkeys(COORDINATOR_MAY, "any")
    rights = {role: {"view": "any", **nothing} for role in ROLES}
    return {
        "format_version": "1.0",
        "permissions": {**rights, "project_admin": {**coordinator, **nothing}},
    }


def _privacy(participant: Participant, terms: Config) -> dict[str, Any]:
    scope = {
        "name": "agreed",
        "properties": {},
        "task_result_filters": [{"path": FILTER_CLASS, "args": allowed_by(participant, terms)}],
    }
    return {"scopes": [scope], "default_scope": "agreed"}


def allowed_by(participant: Participant, terms: Config) -> dict[str, Any]:
    """Everything that any method consented to would send, for the site's filter."""
    tensors: dict[str, list[dict[str, Any]]] = {}
    values = {*FRAME, *SCORES, *(f"up/{name}" for name in UNASKED)}
    consent = Consent(participant.methods, participant.consents, participant.limits)
    tree = terms.model_dump(mode="json", exclude={"method"})
    for name in participant.methods:
        agreed = {"name": name, **consent.keys_of(name)}
        simulation = Simulation(own_config({**tree, "method": agreed}, participant))
        card = simulation.population.card(participant.name, simulation.method.needs)
        spec = reply_spec(simulation.method, card, simulation.context(1))
        values |= {f"up/{key}" for key in spec.meta}
        for group in spec.groups:
            for option in group.options:
                for key, tensor in option.items():
                    tensors.setdefault(key, []).append(_form(tensor))
    limit = participant.limits.floats
    return {"tensors": tensors, "values": sorted(values), "floats": limit}


def _form(tensor: TensorSpec) -> dict[str, Any]:
    shape = [{"most": size.limit} if isinstance(size, Max) else size for size in tensor.shape]
    return {"shape": shape, "dtype": str(tensor.dtype).removeprefix("torch.")}


def _defaults(local: Path) -> Any:
    """What FLARE would allow, in a kit that came whole."""
    path = local / "resources.json.default"
    return parse_json(path, read(path))


def _write(path: Path, tree: Any) -> None:
    write_atomically(path, json.dumps(tree, indent=2).encode())  # readable by the owner only
