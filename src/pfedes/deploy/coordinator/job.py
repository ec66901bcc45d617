"""The job by which FLARE carries a run: three files that name classes of pfedes, and no code."""

import json
from collections.abc import Sequence
from pathlib import Path

from pfedes.deploy.app import server_app, site_app
from pfedes.deploy.coordinator.layout import Layout
from pfedes.files import writing


def write_job(layout: Layout, sites: Sequence[str]) -> Path:
    """The job for these sites, as it is submitted."""
    files = {
        "meta.json": {
            "name": "pfedes",
            "resource_spec": {},
            "min_clients": 1,
            "deploy_map": {"server": ["server"], "site": list(sites)},
        },
        "server/config/config_fed_server.json": server_app(str(layout.directory.absolute())),
        "site/config/config_fed_client.json": site_app(),
    }
    with writing(layout.job):
        for name, tree in files.items():
            path = layout.job / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(tree, indent=2), encoding="utf-8")
    return layout.job
