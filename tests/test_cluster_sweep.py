"""Sweeps on a cluster, and cell by cell without one."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clusters import Cluster, Gate, Meanwhile, Process, log_of, on, wait_until
from pfedes import Config, ConfigError, Federation
from pfedes.cli import execute
from pfedes.sweep.cells import Cell, Outcome, nth
from pfedes.sweep.compare import cells_of
from pfedes.sweep.execute import run_cells
from pictures import cifar_binary
from running import result, small

METHODS = ["standalone", "lg_fedavg"]


def common(rounds: int = 2, **settings: Any) -> Config:
    tiny = {"models__pool": ["cnn5"], "runtime__report": False, "train__rounds": rounds}
    return small("standalone", **{**tiny, **settings})


def results(outcomes: list[Outcome]) -> dict[str, Any]:
    return {o.cell.name: result(o.run) for o in outcomes if o.run is not None}


def alone(cells: list[Cell], place: Path) -> dict[str, Any]:
    """What the cells must give: each as a run of its own, in this process."""
    return {
        cell.name: result(Federation(cell.config, out=place / cell.name).run()) for cell in cells
    }


def leashed(node: Process) -> list[int]:
    """The children that a node's worker holds on a leash."""
    found = []
    for pid in node.members():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        found += [pid] if "pfedes.sweep.child_main" in words else []
    return found


def test_a_stop_while_a_run_takes_its_place_leaves_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pfedes.sweep.dask import _replace

    place, work = tmp_path / "cell", tmp_path / "work"
    for directory, text in ((place, "begun"), (work, "finished")):
        (directory / "state").mkdir(parents=True)
        (directory / "config.toml").write_text(text)
    removed: list[Path] = []

    def stopped(path: Path, **_: object) -> None:
        (Path(path) / "config.toml").unlink(missing_ok=True)
        removed.append(Path(path))
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", stopped)
    with pytest.raises(KeyboardInterrupt):
        _replace(place, work)
    assert removed
    assert (place / "config.toml").read_text() == "finished"
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["cell"]


def test_cells_come_home_as_ordinary_runs(two_nodes: Cluster, tmp_path: Path) -> None:
    runtime = on(two_nodes).runtime
    cells = cells_of(common(**two_nodes.settings), METHODS, [0, 1], tmp_path / "far")
    expected = alone(cells, tmp_path / "alone")
    # One was begun here; it continues there.
    (begun, *_) = cells_of(common(rounds=1), METHODS, [0], tmp_path / "far")
    Federation(begun.config, out=begun.directory).run()

    seen: list[dict[str, int]] = []
    far = run_cells(cells, watch=lambda working, _: seen.append(dict(working)), cluster=runtime)
    assert results(far) == expected
    assert max(map(len, seen)) == 2  # side by side
    assert max(rounds for working in seen for rounds in working.values()) > 0
    assert {o.run.config.runtime.cluster for o in far if o.run is not None} == {""}
    assert not list((tmp_path / "far").rglob(".seed-*"))

    stamps = [(cell.directory / "summary.json").stat().st_mtime_ns for cell in cells]
    assert results(run_cells(cells, cluster=runtime)) == expected
    assert [(cell.directory / "summary.json").stat().st_mtime_ns for cell in cells] == stamps


def test_the_command(
    two_nodes: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What one method cannot do is that cell's failure, as it is on one machine."""
    (tmp_path / "c.toml").write_text(
        small("standalone", train__rounds=1, runtime__report=False).to_toml()
    )
    words = ["compare", "c.toml", "--methods", "standalone,fedavg", "--out", "o"]
    assert execute([*words, "--cluster", two_nodes.address, "--tls", str(two_nodes.tls)]) == 0
    assert "standalone/seed-0: " in capsys.readouterr().err
    records = {row["method"]: row for row in json.loads(Path("o/compare.json").read_text())}
    assert "set models.pool to one architecture" in records["fedavg"]["reason"]
    assert records["standalone"]["seeds"] == [0]


def test_a_node_that_fails_has_its_cell_done_by_another(tmp_path: Path) -> None:
    """Two nodes and a child for each cell, all of which import torch, take the time."""
    gate = Gate(tmp_path / "gate")
    with Cluster(tmp_path / "cluster") as cluster:
        for name in ("node1", "node2"):
            cluster.add(name, "--no-nanny", env=gate.environment)
        cluster.wait_for(2)
        runtime = on(cluster, runtime__deadline=5).runtime
        for seed, fault in enumerate((signal.SIGSTOP, signal.SIGKILL)):
            (cell,) = cells_of(common(), ["gated:Gated"], [seed], tmp_path / "far")
            strike = partial(_strike, cluster, gate, seed, fault)
            with Meanwhile(strike) as struck:
                outcomes = run_cells([cell], cluster=runtime)
            assert results(outcomes) == alone([cell], tmp_path / "alone")
            before = (cell.directory / "summary.json").read_bytes()
            node = struck.result()
            node.send(signal.SIGCONT)
            # Thawed, it learns that nobody waits any more.
            wait_until(partial(_has_no_child, node), "the end of the child")
            assert (cell.directory / "summary.json").read_bytes() == before


def _strike(cluster: Cluster, gate: Gate, seed: int, fault: signal.Signals) -> Process:
    """Hits the worker that is running a cell, and then lets the cell continue."""
    gate.open(seed, 1)
    node = cluster.node_of(gate.holder(seed, 2))
    # The node's worker alone, so that its child has to notice that by itself.
    os.kill(node.pid, fault)
    gate.open(seed, 2)
    return node


def _has_no_child(node: Process) -> bool:
    return not leashed(node)


def test_a_killed_driver_leaves_nothing_running_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node, a driver and two children that import torch take the time."""
    gate = Gate(tmp_path / "gate")
    monkeypatch.setenv("PYTHONPATH", gate.environment["PYTHONPATH"])
    with Cluster(tmp_path / "cluster") as cluster:
        node = cluster.add("node", "--no-nanny", env=gate.environment)
        cluster.wait_for(1)
        (tmp_path / "c.toml").write_text(common(rounds=1).to_toml())
        words = ["compare", "c.toml", "--methods", "gated:Gated", "--out", "o", "--quiet"]
        words += ["--cluster", cluster.address, "--tls", str(cluster.tls)]
        driver = subprocess.Popen([sys.executable, "-m", "pfedes", *words])
        child = gate.holder(0, 1)
        assert leashed(node) == [child]
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
        wait_until(lambda: not leashed(node), "the end of the child")
        assert not list(tmp_path.glob("o/*/seed-0"))
        gate.open(0, 1)
        assert execute(words) == 0
        assert len(list(tmp_path.glob("o/*/seed-0/summary.json"))) == 1


def test_data_is_sent_once_to_a_machine_that_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three nodes and a child that import torch take the time."""
    cifar_binary(tmp_path / "data" / "cifar10", "cifar10", rows=20)
    monkeypatch.setenv("PFEDES_DATA", str(tmp_path / "data"))
    settings: dict[str, Any] = {
        "data__source": "cifar10",
        "data__limit": 0,
        "partition__classes_per_client": 4,
    }
    serial = Federation(common(**settings), out=tmp_path / "serial").run()
    with Cluster(tmp_path / "cluster") as cluster:
        # Two workers of one machine, as far as their caches go, and both without the files.
        lacking = {"PFEDES_DATA": "", "PFEDES_CACHE": str(tmp_path / "cache")}
        cluster.add("node1", "--no-nanny", env=lacking)
        cluster.add("node2", "--no-nanny", env=lacking)
        cluster.wait_for(2)
        config = on(cluster, "standalone", train__rounds=2, **settings)
        run = Federation(config, out=tmp_path / "run").run()
        assert result(run) == result(serial)
        assert log_of(run.directory).count("the data was sent to node") == 1
        assert [path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir()] == [
            "received"
        ]
        # A cell's own process finds what was sent.
        cells = cells_of(config, ["standalone"], [0], tmp_path / "far")
        assert results(run_cells(cells, cluster=config.runtime)) == {
            "standalone/seed-0": result(serial)
        }
        # Who has the same data needs none.
        own = {"PFEDES_DATA": str(tmp_path / "data"), "PFEDES_CACHE": str(tmp_path / "own")}
        cluster.nodes["node1"].end()
        cluster.nodes["node2"].end()
        cluster.add("node3", "--no-nanny", env=own)
        cluster.wait_for(3)
        run = Federation(config, out=tmp_path / "again").run()
        assert result(run) == result(serial)
        assert "the data was sent" not in log_of(run.directory)
        assert not list((tmp_path / "own").glob("received-*"))


@pytest.mark.usefixtures("cells_here")
def test_cell_by_cell_without_a_daemon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text(common(rounds=1).to_toml())

    def said(*words: str) -> str:
        common_words = ["compare", "c.toml", "--methods", "standalone,lg_fedavg"]
        capsys.readouterr()
        assert execute([*common_words, *words]) == 0
        return capsys.readouterr().out

    assert said("--count") == "2\n"
    assert not (tmp_path / "runs").exists()
    assert said("--out", "o", "--cell", "1") == "o/standalone/seed-0\n"
    assert not (tmp_path / "o" / "compare.md").exists()
    partly = {row["method"]: row for row in json.loads(said("--out", "o", "--collect", "--json"))}
    assert partly["lg_fedavg"]["reason"] == "not finished: 0 of 1 rounds"
    assert said("--out", "o", "--cell", "2") == "o/lg_fedavg/seed-0\n"
    whole = said("--out", "o", "--collect", "--json")
    assert json.loads(whole) == json.loads(said("--out", "o", "--json"))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("--cell 3 --out o", "--cell 3: there are 2 cells, 1 to 2"),
        ("--cell 1", "--cell needs --out, the directory that all cells share"),
        ("--cell 1 --collect --out o", "--cell and --collect exclude each other"),
    ],
)
def test_impossible_cell_options_are_refused(
    wrong: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "--methods", "standalone,lg_fedavg", *wrong.split()]
    assert execute(words) == 2
    assert why in capsys.readouterr().err


def test_cells_are_numbered_from_one(tmp_path: Path) -> None:
    cells = cells_of(common(), METHODS, [0], tmp_path)
    assert nth(cells, 1) is cells[0]
    assert nth(cells, 2) is cells[1]
    for number in (0, 3, -1):
        with pytest.raises(ConfigError, match=f"--cell {number}: there are 2 cells"):
            nth(cells, number)
