"""A cluster gives the serial fleet's bits: real schedulers and workers, over loopback, with TLS."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from clusters import SETTINGS, AtFirstAnswer, Cluster, log_of, on
from pfedes import Federation, open_run
from running import result, small
from test_kills import Started


@pytest.mark.parametrize("share", [False, True])
def test_the_same_bits_as_serial(
    share: bool, two_nodes: Cluster, serial_result: dict[str, Any], tmp_path: Path
) -> None:
    config = on(two_nodes, runtime__share_directory=share)
    run = Federation(config, out=tmp_path / "run").run()
    assert result(run) == serial_result
    states = "in the run directory" if share else "travelling"
    assert f"2 nodes of {two_nodes.address} (states {states})" in log_of(run.directory)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]  # and no probe is left


def test_large_answers_and_scores_after_aggregation(two_nodes: Cluster, tmp_path: Path) -> None:
    """FedAvg uploads whole models, and all clients are measured with what they would be sent."""
    settings = {"train__rounds": 2, "train__participation": 0.5}
    serial = Federation(small("fedavg", **{**SETTINGS, **settings}), out=tmp_path / "serial").run()
    run = Federation(on(two_nodes, "fedavg", **settings), out=tmp_path / "run").run()
    assert result(run) == result(serial)


def test_begun_with_workers_and_resumed_on_a_cluster(
    two_nodes: Cluster, serial_result: dict[str, Any], tmp_path: Path
) -> None:
    begun = {**SETTINGS, "train__rounds": 1, "runtime__fleet": "workers", "runtime__workers": 2}
    Federation(small(**begun), out=tmp_path / "run").run()
    run = Federation.resume(
        tmp_path / "run", rounds=3, cluster=two_nodes.address, tls=two_nodes.tls
    ).run()
    assert result(run) == serial_result
    assert run.config.runtime.fleet == "cluster"


@pytest.mark.parametrize("what", ["worker", "node"])
def test_a_killed_worker_and_a_killed_node(
    what: str, serial_result: dict[str, Any], tmp_path: Path
) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.add("node1", "--no-nanny")
        victim = cluster.add("node2")

        def kill() -> None:
            _, *below = victim.members()
            assert below
            for pid in below if what == "worker" else [victim.pid, *below]:
                os.kill(pid, signal.SIGKILL)

        listener = AtFirstAnswer(kill)
        run = Federation(on(cluster), out=tmp_path / "run", listener=listener).run()
    assert result(run) == serial_result
    said = log_of(run.directory)
    assert "node2 has left the cluster" in said
    # It was at work on one client, whose round another worker repeated; nobody else's was.
    assert said.count("on node2: its worker died (attempt 1 of 3)") == said.count("attempt") == 1


@pytest.mark.parametrize("share", [False, True])
def test_a_frozen_node_that_thaws_later(
    share: bool, serial_result: dict[str, Any], tmp_path: Path
) -> None:
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.add("node1", "--no-nanny")
        frozen = cluster.add("node2", "--no-nanny")
        freeze = AtFirstAnswer(lambda: frozen.send(signal.SIGSTOP))
        config = on(cluster, runtime__deadline=4, runtime__share_directory=share)
        run = Federation(config, out=tmp_path / "run", listener=freeze).run()
        assert result(run) == serial_result
        assert "on node2: no answer within 4 s (attempt 1 of 3)" in log_of(run.directory)
        before = files_of(run.directory)
        frozen.send(signal.SIGCONT)
        # It finishes what it was at, and is then free again: a second run counts on it.
        again = Federation(on(cluster), out=tmp_path / "again").run()
        assert result(again) == serial_result
        assert f"2 nodes of {cluster.address}" in log_of(again.directory)
        late = {name: data for name, data in files_of(run.directory).items() if name not in before}
        assert files_of(run.directory).items() >= before.items()
        assert all(Path(name).name.startswith(".00002-") for name in late)
        resumed = Federation.resume(run.directory).run()
        assert result(resumed) == serial_result  # which lists all files: what came late is gone


def files_of(directory: Path) -> dict[str, bytes]:
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def test_a_killed_scheduler(serial_result: dict[str, Any], tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.add("node1", "--no-nanny")
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
        another.add("node1", "--no-nanny")
        resumed = Federation.resume(directory, cluster=another.address).run()
    assert result(resumed) == serial_result


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_driver(
    kind: signal.Signals, two_nodes: Cluster, serial_result: dict[str, Any], tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    run = Started(directory, on(two_nodes))
    run.wait_for_round(1)
    os.kill(run.pid, kind)
    assert run.end() == (130 if kind == signal.SIGINT else -kind), run.said
    assert "Traceback" not in run.said
    if kind == signal.SIGINT:
        assert f"'pfedes resume {directory}' goes on" in run.said
    assert result(Federation.resume(directory).run()) == serial_result
