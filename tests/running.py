"""What several tests do: small configurations, and comparing what runs left on disk."""

import json
import zlib
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import pytest

from conftest import SMALL
from pfedes import Config, Method, Run, configure
from pfedes.core.payload import Payload
from pfedes.core.protocol import Failure, Reply, Task
from pfedes.fleet.client_host import ClientHost
from pfedes.methods.base import MethodConfig
from pfedes.population.base import Population
from pfedes.population.partitioned import PartitionedPopulation
from pfedes.store.manifest import Extent
from pfedes.store.run_store import RunStore

TIMES = {"seconds"}

C = TypeVar("C", bound=MethodConfig)


def small(method: Method[Any] | str = "pfedes", **settings: Any) -> Config:
    """The small configuration; `section__key=value` changes a setting."""
    chosen = {key.replace("__", "."): value for key, value in settings.items()}
    base = {k: v for k, v in SMALL.items() if method == "pfedes" or not k.startswith("method.")}
    return configure(method=method, settings={**base, **chosen})


def tiny(method: str, **settings: Any) -> Config:
    """Two clients, one model, one round, and a report: as little as a method can do."""
    return small(
        method,
        **{
            "data__limit": 60,
            "partition__clients": 2,
            "partition__classes_per_client": 5,
            "models__pool": ["cnn5"],
            "train__rounds": 1,
            "runtime__report": True,
            **settings,
        },
    )


def few(method: str, **settings: Any) -> Config:
    """Three clients of a few samples, with classes in common: half as much work as `small`."""
    common = {
        "data__limit": 80,
        "partition__clients": 3,
        "partition__classes_per_client": 6,
        "models__pool": ["cnn5"],
    }
    return small(method, **{**common, **settings})


def hyper_parameters(config: Config, kind: type[C]) -> C:
    """Those of the method, which the test knows to be of this kind."""
    assert isinstance(config.method, kind)
    return config.method


def partitioned(population: Population) -> PartitionedPopulation:
    """The population, which the test knows to share one data set."""
    assert isinstance(population, PartitionedPopulation)
    return population


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


def contents(directory: Path) -> dict[str, str]:
    """Every file with what is in it, except the locks and the log, which say who came by."""
    return {
        str(path.relative_to(directory)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in {"lock", "workers", "run.log"}
    }


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def failing(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """Lets one client fail in every round."""
    answer: Callable[[ClientHost, Task], Reply | Failure] = ClientHost.answer

    def sometimes(self: ClientHost, task: Task) -> Reply | Failure:
        return Failure(task.client, reason) if task.client == "client-0001" else answer(self, task)

    monkeypatch.setattr(ClientHost, "answer", sometimes)


def with_rows(directory: Path, name: Any, rows: list[dict[str, Any]]) -> None:
    """Rewrites a metrics file as a forger would: with a manifest that vouches for it."""
    store = RunStore(directory)
    manifest = store.manifest()
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (directory / name).write_bytes(data)
    extent = Extent(length=len(data), crc32=zlib.crc32(data))
    metrics = {**manifest.metrics, name: extent}
    store.write_manifest(manifest.model_copy(update={"metrics": metrics}))
