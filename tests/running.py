"""What several tests do: small configurations, and comparing what runs left on disk."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conftest import SMALL
from pfedes import Config, Method, Run, configure
from pfedes.payload import Payload

TIMES = {"seconds"}


def small(method: Method[Any] | str = "pfedes", **settings: Any) -> Config:
    """The small configuration; `section__key=value` changes a setting."""
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    base = {k: v for k, v in SMALL.items() if method == "pfedes" or not k.startswith("method.")}
    return configure(method=method, settings={**base, **chosen})


def timeless(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in TIMES}


def result(run: Run) -> dict[str, Any]:
    """All that a run has to show, without times and run id: equal results are equal runs."""
    manifest = json.loads(run.manifest.model_dump_json())
    versions = {}
    for round in run.store.rounds():
        for name, standing in run.store.manifest(round).clients.items():
            if standing.version:
                version = run.store.clients.load(run.manifest.run, name, standing.version)
                versions[name, standing.version] = Payload(version.state).digest()
    files = sorted(
        str(path.relative_to(run.directory)).replace(run.manifest.run, "RUN")
        for path in run.directory.rglob("*")
        if path.is_file()
    )
    return {
        "rounds": [timeless(row) for row in run.rounds],
        "clients": [timeless(row) for row in run.clients],
        "summary": timeless(json.loads((run.directory / "summary.json").read_text())),
        "standings": manifest["clients"],
        "server": run.store.server_state(run.manifest).digest(),
        "versions": versions,
        "files": files,
    }


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
