"""The directories from which FLARE's processes run, generated whenever they start.

Every file that says what FLARE does comes from the templates below. Only certificates,
keys, a host, a port and names come from elsewhere.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from pfedes.config import Config
from pfedes.config.participant import Participant
from pfedes.deploy.app import FILTER_CLASS, SERVER_CLASS, SITE_CLASS
from pfedes.deploy.filter_rules import allowed_by
from pfedes.deploy.hardening import unix
from pfedes.deploy.kit import Kit
from pfedes.deploy.names import ADMIN, check_host
from pfedes.deploy.participant.site_files import PARTICIPANT, TERMS
from pfedes.files import read, write_atomically, writing

PROJECT = "federation"
OWNER_ONLY = 0o700
HEARTBEAT = 30  # seconds without a sign until FLARE's server takes a site for gone
ROLES = ("project_admin", "org_admin", "lead", "member")
COORDINATOR_MAY = (
    "submit_job", "clone_job", "manage_job", "download_job", "view", "operate",
)  # fmt: skip
SCHEME = "tcp"


def write_site(place: Path, kit: Kit, key: bytes, participant: Participant) -> None:
    """Makes a participant's workspace from scratch: nothing of an earlier one stays."""
    terms = kit.terms.federation
    fed_client = {
        "format_version": 2,
        "servers": [{"name": PROJECT, "service": _service(kit.terms), "identity": terms.host}],
        "client": {
            "ssl_private_key": "client.key",
            "ssl_cert": "client.crt",
            "ssl_root_cert": "rootCA.pem",
            "fqsn": participant.name,
            "is_leaf": True,
            "connection_security": "mtls",
            "site_config": {},  # left out, FLARE sends the server what else this site is set to
        },
    }
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [SITE_CLASS, FILTER_CLASS],
        "allow_log_streaming": False,  # logs name files, and perhaps data
        "components": [
            _component("resource_manager",
                       "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
                       num_of_gpus=0, mem_per_gpu_in_GiB=0),
            _component("resource_consumer",
                       "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"),
            _component("process_launcher",
                       "pfedes.deploy.hardening.launcher.SiteLauncher"),
        ],
    }  # fmt: skip
    _empty(place)
    _write_bytes(place / "startup" / "rootCA.pem", kit.authority)
    _write_bytes(place / "startup" / "client.crt", kit.certificate)
    _write_bytes(place / "startup" / "client.key", key)
    _write(place / "startup" / "fed_client.json", fed_client)
    _write(place / "local" / "resources.json", resources)
    _write(place / "local" / "privacy.json", _privacy(participant, kit.terms))
    _write_common(place)
    _write(place / PARTICIPANT, participant.model_dump(mode="json"))
    _write_bytes(place / TERMS, kit.terms.to_toml().encode())


def write_server(place: Path, config: Config) -> None:
    """Writes the server's workspace; `startup` already holds the keys.

    Jobs and snapshots stay in this directory, and jobs bring no code.
    """
    terms = config.federation
    fed_server = {
        "format_version": 2,
        "servers": [
            {
                "name": PROJECT,
                "service": _service(config),
                "admin_server": terms.host,
                "admin_port": terms.port,
                "ssl_private_key": "server.key",
                "ssl_cert": "server.crt",
                "ssl_root_cert": "rootCA.pem",
                "connection_security": "mtls",
            }
        ],
    }
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [SERVER_CLASS],
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 100,
                "heart_beat_timeout": HEARTBEAT,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor"
            ".StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": STORAGE,
                    "args": {"root_dir": str((place / "snapshots").absolute()), "uri_root": "/"},
                },
            },
        },
        "components": [
            _component("job_scheduler",
                       "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                       max_jobs=4),
            _component("job_manager", "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                       uri_root=str((place / "jobs").absolute()), job_store_id="job_store"),
            _component("job_store", STORAGE),
            _component("process_launcher",
                       "pfedes.deploy.hardening.launcher.ServerLauncher"),
        ],
    }  # fmt: skip
    _write(place / "startup" / "fed_server.json", fed_server)
    _write(place / "local" / "resources.json", resources)
    _write_common(place)


def write_session(place: Path, keys: Path, config: Config) -> None:
    """Writes what the coordinator's session needs into an empty directory."""
    terms = config.federation
    check_host(terms.host)
    fed_admin = {
        "format_version": 1,
        "admin": {
            "project_name": PROJECT,
            "username": ADMIN,
            "server_identity": terms.host,
            "scheme": SCHEME,
            "host": terms.host,
            "port": terms.port,
            "connection_security": "mtls",
            "uid_source": "user_input",
            "with_file_transfer": True,
            "upload_dir": "transfer",
            "download_dir": "transfer",
            "client_key": "client.key",
            "client_cert": "client.crt",
            "ca_cert": "rootCA.pem",
            "idle_timeout": 900.0,
            "login_timeout": 10.0,
            "authenticate_msg_timeout": 2.0,
        },
    }
    for name in ("client.key", "client.crt", "rootCA.pem"):
        _write_bytes(place / "startup" / name, read(keys / name))
    _write(place / "startup" / "fed_admin.json", fed_admin)
    _write(place / "local" / "resources.json", {"format_version": 1})


STORAGE = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"


def _service(config: Config) -> dict[str, str]:
    return {"target": f"{config.federation.host}:{config.federation.port}", "scheme": SCHEME}


def _component(name: str, path: str, **args: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": args}


def _write_common(place: Path) -> None:
    _write(place / "local" / "authorization.json", _authorization())
    _write(place / "local" / "log_config.json", _logging())
    _write(place / "local" / "comm_config.json", _communication())


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
    """The filter of what leaves. It belongs to the site: no job can change or remove it."""
    scope = {
        "name": "agreed",
        "properties": {},
        "task_result_filters": [{"path": FILTER_CLASS, "args": allowed_by(participant, terms)}],
    }
    return {"scopes": [scope], "default_scope": "agreed"}


def _logging() -> dict[str, Any]:
    """Everything to standard output, which the parent process writes into one file."""
    line = "%(asctime)s - %(name)s - %(levelname)s - %(fl_ctx)s - %(message)s"
    formatter = {"()": "nvflare.fuel.utils.log_utils.BaseFormatter", "fmt": line}
    handler = {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stdout"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": formatter},
        "handlers": {"console": handler},
        "loggers": {"root": {"level": "INFO", "handlers": ["console"]}},
    }


def _communication() -> dict[str, Any]:
    """Parent and job processes meet at a Unix socket, not at a port."""
    return {"allow_adhoc_conns": False, "internal": {"scheme": unix.SCHEME, "resources": {}}}


def _empty(place: Path) -> None:
    with writing(place):
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(mode=OWNER_ONLY)


def _write(path: Path, tree: Any) -> None:
    _write_bytes(path, json.dumps(tree, indent=2).encode())


def _write_bytes(path: Path, data: bytes) -> None:
    with writing(path):
        path.parent.mkdir(mode=OWNER_ONLY, exist_ok=True)
    write_atomically(path, data)  # readable by the owner only
