"""A cluster gives the serial fleet's bits: real schedulers and workers, over loopback, with TLS."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters import Cluster
from pfedes import Federation
from running import result, small

SETTINGS = {"train__rounds": 3, "models__pool": ["cnn5"], "runtime__report": False}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.add("node1")
        cluster.add("node2")
        yield cluster


@pytest.mark.parametrize("method", ["pfedes", "fedavg"])
@pytest.mark.parametrize("share", [False, True])
def test_the_same_bits_as_serial(
    method: str, share: bool, cluster: Cluster, tmp_path: Path
) -> None:
    serial = Federation(small(method, **SETTINGS), out=tmp_path / "serial").run()
    settings: dict[str, Any] = {**SETTINGS, **cluster.settings, "runtime__share_directory": share}
    run = Federation(small(method, **settings), out=tmp_path / "run").run()
    assert result(run) == result(serial)
    states = "in the run directory" if share else "travelling"
    said = (tmp_path / "run" / "run.log").read_text()
    assert f"2 nodes of {cluster.address} (states {states})" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "serial"]
