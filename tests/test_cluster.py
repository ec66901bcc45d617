"""A cluster gives the serial fleet's bits: real schedulers and workers, over loopback, with TLS."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters import SETTINGS, Cluster, Gate, Meanwhile, Process, log_of, on
from pfedes import Federation, open_run
from pfedes.methods import METHODS
from processes import Started
from running import result, small

GATED = "gated:Gated"
QUICKLY = ("fedtgp", "fedmrl")  # server training, and what is kept beside the model


@pytest.mark.parametrize(
    "method",
    [
        method if method in QUICKLY else pytest.param(method, marks=pytest.mark.repeat)
        for method in METHODS
    ],
)
def test_every_method_gives_the_bits_of_one_process(
    method: str, two_nodes: Cluster, tmp_path: Path
) -> None:
    """What a client keeps beside its model travels with it; class ids come with uploads."""
    brief = {"train__rounds": 2, "train__epochs": 1}
    serial = Federation(small(method, **{**SETTINGS, **brief}), out=tmp_path / "serial").run()
    run = Federation(on(two_nodes, method, **brief), out=tmp_path / "run").run()
    assert result(run) == result(serial)


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
    """Two workers that import torch take the time."""
    begun: dict[str, Any] = {
        **SETTINGS,
        "train__rounds": 1,
        "runtime__fleet": "workers",
        "runtime__workers": 2,
    }
    Federation(small(**begun), out=tmp_path / "run").run()
    run = Federation.resume(
        tmp_path / "run", rounds=3, cluster=two_nodes.address, tls=two_nodes.tls
    ).run()
    assert result(run) == serial_result
    assert run.config.runtime.fleet == "cluster"


@pytest.mark.parametrize("share", [pytest.param(False, marks=pytest.mark.repeat), True])
def test_workers_and_nodes_that_die_or_freeze(share: bool, tmp_path: Path) -> None:
    """One fault in each round, to whoever trains a certain client at that moment.

    Three nodes import torch, one of them twice. In a shared directory, where a late writer could
    do harm; states that travel are written by the driver alone.
    """
    rounds = {"train__rounds": 4}
    serial = Federation(small(GATED, **{**SETTINGS, **rounds}), out=tmp_path / "serial").run()
    gate = Gate(tmp_path / "gate")
    with Cluster(tmp_path / "cluster") as cluster:
        for name in ("a", "b", "c"):
            cluster.add(name, env=gate.environment)
        cluster.wait_for(3)
        frozen: list[Process] = []

        def do_harm() -> None:
            os.kill(gate.holder(0, 1), signal.SIGKILL)  # Dask restarts it
            gate.open(0, 1)
            cluster.node_of(gate.holder(0, 2)).end()
            gate.open(0, 2)
            frozen.append(cluster.node_of(gate.holder(0, 3)))
            frozen[0].send(signal.SIGSTOP)
            gate.open(0, 3, 4)

        config = on(cluster, GATED, **rounds, runtime__deadline=6, runtime__share_directory=share)
        with Meanwhile(do_harm):
            run = Federation(config, out=tmp_path / "run").run()
        assert result(run) == result(serial)
        said = log_of(run.directory)
        assert said.count("client-0001 on") == 3  # nobody else's round was repeated
        assert said.count("its worker died (attempt 1 of 3)") == 2
        assert len(re.findall(r"no answer within \d+ s \(attempt 1 of 3\)", said)) == 1

        before = files_of(run.directory)
        frozen[0].send(signal.SIGCONT)
        # It finishes what it was at, and is then free again: a second run counts on it.
        again = Federation(on(cluster, GATED, **rounds), out=tmp_path / "again").run()
        assert result(again) == result(serial)
        assert f"2 nodes of {cluster.address}" in log_of(again.directory)
        after = files_of(run.directory)
        assert after.items() >= before.items()
        assert all(Path(name).name.startswith(".00003-") for name in after.keys() - before.keys())
        resumed = Federation.resume(run.directory).run()
        assert result(resumed) == result(serial)  # which lists all files: what came late is gone


def files_of(directory: Path) -> dict[str, bytes]:
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Gate]]:
    """A cluster of one node, whose driver is to be stopped."""
    gate = Gate(tmp_path_factory.mktemp("gated") / "gate")
    with Cluster(tmp_path_factory.mktemp("gated")) as cluster:
        cluster.add("node", "--no-nanny", env=gate.environment)
        cluster.wait_for(1)
        yield cluster, gate


@pytest.mark.parametrize(("kind", "seed"), [(signal.SIGKILL, 1), (signal.SIGINT, 2)])
def test_a_stopped_driver(
    kind: signal.Signals,
    seed: int,
    gated: tuple[Cluster, Gate],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver that imports torch, and then a node, take the time."""
    cluster, gate = gated
    monkeypatch.setenv("PYTHONPATH", gate.environment["PYTHONPATH"])
    directory = tmp_path / "run"
    gate.open(seed, 1)
    run = Started(directory, on(cluster, GATED, seed=seed))
    gate.holder(seed, 2)
    os.kill(run.pid, kind)
    assert run.end() == (130 if kind == signal.SIGINT else -kind), run.said
    assert "Traceback" not in run.said
    if kind == signal.SIGINT:
        assert f"'pfedes resume {directory}' continues" in run.said
    assert open_run(directory).manifest.round == 1
    gate.open(seed, 2, 3)
    resumed = Federation.resume(directory).run()
    serial = Federation(small(GATED, **SETTINGS, seed=seed), out=tmp_path / "serial").run()
    assert result(resumed) == result(serial)


def test_a_killed_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters and a driver, each of which imports torch, take the time."""
    gate = Gate(tmp_path / "gate")
    monkeypatch.setenv("PYTHONPATH", gate.environment["PYTHONPATH"])
    directory = tmp_path / "run"
    with Cluster(tmp_path / "cluster") as cluster:
        node = cluster.add("node", env=gate.environment)
        gate.open(0, 1)
        run = Started(directory, on(cluster, GATED))
        gate.holder(0, 2)
        cluster.scheduler.end()
        assert run.end() == 2, run.said
        node.end()
        address = cluster.address
    last = run.said.splitlines()[-1]
    assert f"pfedes: the scheduler at {address} is gone" in last
    assert f"'pfedes resume {directory}'" in last
    assert "Traceback" not in run.said
    assert open_run(directory).manifest.round == 1
    gate.open(0, 2, 3)
    with Cluster(tmp_path / "another", cluster.tls) as another:
        another.add("node", "--no-nanny", env=gate.environment)
        resumed = Federation.resume(directory, cluster=another.address).run()
    serial = Federation(small(GATED, **SETTINGS), out=tmp_path / "serial").run()
    assert result(resumed) == result(serial)
