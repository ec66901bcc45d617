"""What a job runs at the server and at a site: classes of pfedes by name, and no code.

A site compares what the coordinator deploys with this, and starts nothing else.
"""

from typing import Any

TASK = "pfedes"
SITE_CLASS = "pfedes.deploy.participant.executor.Site"
FILTER_CLASS = "pfedes.deploy.participant.filter.OnlyAgreed"
SERVER_CLASS = "pfedes.deploy.coordinator.controller.Coordinator"
POLL = 0.1  # seconds between two looks of a site for work; FLARE's own is 2

_EMPTY: dict[str, Any] = {
    "format_version": 2,
    "task_data_filters": [],
    "task_result_filters": [],
    "components": [],
}


def site_app() -> dict[str, Any]:
    """`config_fed_client.json` of the job."""
    executor = {"path": SITE_CLASS, "args": {}}
    return {**_EMPTY, "executors": [{"tasks": [TASK], "executor": executor}]}


def server_app(directory: str) -> dict[str, Any]:
    """`config_fed_server.json` of the job; `directory` is the federation's."""
    workflow = {"id": "rounds", "path": SERVER_CLASS, "args": {"directory": directory}}
    return {**_EMPTY, "server": {"task_request_interval": POLL}, "workflows": [workflow]}
