"""The job by which FLARE carries a run: three files that name classes of pfedes, and no code."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pfedes.files import writing
from pfedes.fleet.flare.controller import TASK
from pfedes.fleet.flare.layout import Layout
from pfedes.fleet.flare.policy import SERVER_CLASS, SITE_CLASS

POLL = 0.1  # seconds between two looks of a site for work; FLARE's own is 2


def write_job(layout: Layout, sites: Sequence[str]) -> Path:
    """The job for these sites, as it is submitted."""
    workflow = {
        "id": "rounds",
        "path": SERVER_CLASS,
        "args": {"directory": str(layout.directory.absolute())},
    }
    empty: dict[str, Any] = {
        "format_version": 2,
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [],
    }
    files = {
        "meta.json": {
            "name": "pfedes",
            "resource_spec": {},
            "min_clients": 1,
            "deploy_map": {"server": ["server"], "site": list(sites)},
        },
        "server/config/config_fed_server.json": {
            **empty,
            "server": {"task_request_interval": POLL},
            "workflows": [workflow],
        },
        "site/config/config_fed_client.json": {
            **empty,
            "executors": [{"tasks": [TASK], "executor": {"path": SITE_CLASS, "args": {}}}],
        },
    }
    with writing(layout.job):
        for name, tree in files.items():
            path = layout.job / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(tree, indent=2), encoding="utf-8")
    return layout.job
