"""A cluster gives the serial fleet's bits: real schedulers and workers, over loopback, with TLS."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters import Cluster
from pfedes import Config, Federation, Listener, open_run
from pfedes.admission import Verdict
from running import result, small
from test_kills import Started

SETTINGS = {"train__rounds": 3, "models__pool": ["cnn5"], "runtime__report": False}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return result(Federation(small(**SETTINGS), out=tmp_path_factory.mktemp("s") / "run").run())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes that nothing happens to."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.add("node1")
        cluster.add("node2")
        yield cluster


def on(cluster: Cluster, method: str = "pfedes", **settings: Any) -> Config:
    return small(method, **{**SETTINGS, **cluster.settings, **settings})


def log_of(directory: Path) -> str:
    return (directory / "run.log").read_text()


@pytest.mark.parametrize("share", [False, True])
def test_the_same_bits_as_serial(
    share: bool, cluster: Cluster, straight: dict[str, Any], tmp_path: Path
) -> None:
    config = on(cluster, runtime__share_directory=share)
    run = Federation(config, out=tmp_path / "run").run()
    assert result(run) == straight
    states = "in the run directory" if share else "travelling"
    assert f"2 nodes of {cluster.address} (states {states})" in log_of(run.directory)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]  # and no probe is left


def test_large_answers_and_scores_after_aggregation(cluster: Cluster, tmp_path: Path) -> None:
    """FedAvg uploads whole models, and all clients are measured with what they would be sent."""
    settings = {"train__rounds": 2, "train__participation": 0.5}
    serial = Federation(small("fedavg", **{**SETTINGS, **settings}), out=tmp_path / "serial").run()
    run = Federation(on(cluster, "fedavg", **settings), out=tmp_path / "run").run()
    assert result(run) == result(serial)


def test_begun_with_workers_and_resumed_on_a_cluster(
    cluster: Cluster, straight: dict[str, Any], tmp_path: Path
) -> None:
    begun = {**SETTINGS, "train__rounds": 1, "runtime__fleet": "workers", "runtime__workers": 2}
    Federation(small(**begun), out=tmp_path / "run").run()
    run = Federation.resume(
        tmp_path / "run", rounds=3, cluster=cluster.address, tls=cluster.tls
    ).run()
    assert result(run) == straight
    assert run.config.runtime.fleet == "cluster"


class AtFirstAnswer(Listener):
    """Does something once, when the first client of a round has answered."""

    def __init__(self, deed: Callable[[], object], round: int = 2) -> None:
        self.deed = deed
        self.round = round
        self.done = False

    def client_done(self, verdict: Verdict) -> None:
        if verdict.task.round == self.round and not self.done:
            self.done = True
            self.deed()


@pytest.mark.parametrize("what", ["worker", "node"])
def test_a_killed_worker_and_a_killed_node(
    what: str, straight: dict[str, Any], tmp_path: Path
) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.add("node1")
        victim = cluster.add("node2")

        def kill() -> None:
            _, *below = victim.members()
            assert below
            for pid in below if what == "worker" else [victim.pid, *below]:
                os.kill(pid, signal.SIGKILL)

        listener = AtFirstAnswer(kill)
        run = Federation(on(cluster), out=tmp_path / "run", listener=listener).run()
    assert result(run) == straight
    said = log_of(run.directory)
    assert "node2 has left the cluster" in said
    # It was at work on one client, whose round another worker repeated; nobody else's was.
    assert said.count("on node2: its worker died (attempt 1 of 3)") == said.count("attempt") == 1


@pytest.mark.parametrize("share", [False, True])
def test_a_frozen_node_that_thaws_later(
    share: bool, straight: dict[str, Any], tmp_path: Path
) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.add("node1")
        frozen = cluster.add("node2")
        freeze = AtFirstAnswer(lambda: frozen.send(signal.SIGSTOP))
        config = on(cluster, runtime__deadline=4, runtime__share_directory=share)
        run = Federation(config, out=tmp_path / "run", listener=freeze).run()
        assert result(run) == straight
        assert "on node2: no answer within 4 s (attempt 1 of 3)" in log_of(run.directory)
        before = files_of(run.directory)
        frozen.send(signal.SIGCONT)
        # It finishes what it was at, and is then free again: a second run counts on it.
        again = Federation(on(cluster), out=tmp_path / "again").run()
        assert result(again) == straight
        assert f"2 nodes of {cluster.address}" in log_of(again.directory)
        late = {name: data for name, data in files_of(run.directory).items() if name not in before}
        assert files_of(run.directory).items() >= before.items()
        assert all(Path(name).name.startswith(".00002-") for name in late)
        resumed = Federation.resume(run.directory).run()
        assert result(resumed) == straight  # which lists all files: what came late is gone


def files_of(directory: Path) -> dict[str, bytes]:
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def test_a_killed_scheduler(straight: dict[str, Any], tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.add("node1")
        cluster.add("node2")
        run = Started(directory, on(cluster))
        run.wait_for_round(1)
        cluster.scheduler.end()
        assert run.end() == 2, run.said
        address = cluster.address
    last = run.said.splitlines()[-1]
    assert f"pfedes: the scheduler at {address} is gone" in last
    assert f"'pfedes resume {directory}'" in last
    assert "Traceback" not in run.said
    assert open_run(directory).manifest.round >= 1
    with Cluster(tmp_path / "another", cluster.tls) as another:
        another.add("node1")
        resumed = Federation.resume(directory, cluster=another.address).run()
    assert result(resumed) == straight


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_driver(
    kind: signal.Signals, cluster: Cluster, straight: dict[str, Any], tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    run = Started(directory, on(cluster))
    run.wait_for_round(1)
    os.kill(run.pid, kind)
    assert run.end() == (130 if kind == signal.SIGINT else -kind), run.said
    assert "Traceback" not in run.said
    if kind == signal.SIGINT:
        assert f"'pfedes resume {directory}' goes on" in run.said
    assert result(Federation.resume(directory).run()) == straight
