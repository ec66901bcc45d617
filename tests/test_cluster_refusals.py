"""Who may join a cluster run, and what is said when there is no cluster to run on."""

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import dask
import pytest

import pfedes
from clusters import SETTINGS, Cluster, Gate, Meanwhile, authority, log_of, on, wait_until
from pfedes import ClusterError, Config, ConfigError, Federation, configure
from pfedes.cli import execute
from pfedes.fleet.dask.compatibility import NodeFacts, differences, facts_of_process
from pfedes.fleet.dask.roster import Refused, Roster
from running import result, small

ODD = {
    "two-threads": "2 threads: start it with --nthreads 1",
    "small": "of free memory, 500 MB are needed",
    "other-source": "pfedes 0.0.1 (source",
    "other-processor": "its training gives other bits",
}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One node that is as it should be, and four that are not."""
    place = tmp_path_factory.mktemp("crowd")
    other = place / "other"
    shutil.copytree(Path(pfedes.__file__).parent, other / "pfedes")
    names = other / "pfedes" / "version.py"
    version = f'__version__ = "{pfedes.__version__}"'
    names.write_text(names.read_text().replace(version, '__version__ = "0.0.1"'))
    with Cluster(place / "cluster") as cluster:
        cluster.add("good", "--no-nanny")
        cluster.add("two-threads", "--no-nanny", "--nthreads", "2")
        cluster.add("small", "--no-nanny", "--memory-limit", "700MB")
        cluster.add("other-source", "--no-nanny", env={"PYTHONPATH": str(other)})
        cluster.add("other-processor", "--no-nanny", env={"ATEN_CPU_CAPABILITY": "default"})
        cluster.wait_for(5)
        yield cluster


@pytest.fixture(scope="module")
def lonely(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A scheduler without nodes; whoever adds some takes them away again."""
    with Cluster(tmp_path_factory.mktemp("lonely") / "cluster") as cluster:
        yield cluster


def test_nodes_that_differ_are_named_and_left_out(crowd: Cluster, tmp_path: Path) -> None:
    """Five nodes that import torch take the time."""
    settings: dict[str, Any] = {"train__rounds": 1}
    run = Federation(on(crowd, **settings), out=tmp_path / "run").run()
    said = log_of(run.directory)
    for name, why in ODD.items():
        (line,) = [line for line in said.splitlines() if f"left out: {name}: " in line]
        assert why in line
    assert f"1 node of {crowd.address}" in said


def test_other_processors_may_be_accepted(crowd: Cluster, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "train__rounds": 1,
        "runtime__mixed_hardware": True,
        "runtime__report": True,
    }
    run = Federation(on(crowd, **settings), out=tmp_path / "run").run()
    said = log_of(run.directory)
    assert f"2 nodes of {crowd.address}" in said
    assert "other-processor (" in said
    assert "gives other bits; runtime.mixed_hardware lets it join" in said
    report = (run.directory / "report.html").read_text()
    assert "bit equality is not promised" in report


def test_a_node_that_does_not_know_the_question_has_another_version() -> None:
    why = "facts_of_worker() takes 3 positional arguments but 4 were given"
    connection = MagicMock(call=AsyncMock(side_effect=TypeError(why)))
    runtime = small(runtime__device="cpu").runtime
    roster = Roster(connection, runtime, None, AsyncMock(), ("float32",))
    with pytest.raises(Refused) as refusal:
        asyncio.run(roster._examine("tcp://old:1", 1))
    (ours,) = re.findall(r"the driver.s, (.*): install that version there", str(refusal.value))
    assert ours == facts_of_process("cpu", 1, ()).versions["pfedes"]
    assert str(refusal.value).startswith("tcp://old:1: its pfedes")
    assert str(refusal.value).endswith(f"({why})")


def test_what_differs_is_said_in_full() -> None:
    ours = NodeFacts({"Python": "3.11.7", "torch": "2.13.0"}, "A", "bits", memory=10**10)
    theirs = NodeFacts({"Python": "3.12.1", "torch": "2.13.0"}, "B", "other", memory=10**6)
    assert list(differences(ours, theirs, 4, mixed=False)) == [
        "Python 3.12.1, the driver has 3.11.7",
        "4 threads: start it with --nthreads 1",
        "1 MB of free memory, 500 MB are needed",
    ]
    alike = NodeFacts(ours.versions, "B", "other", memory=10**10)
    assert list(differences(ours, alike, 1, mixed=True)) == []
    (why,) = differences(ours, alike, 1, mixed=False)
    assert why.startswith("its training gives other bits (B; the driver: A)")


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Config], list[str]]:
    """What the command says that cannot begin, after which nothing is left."""

    def said(config: Config) -> list[str]:
        (tmp_path / "c.toml").write_text(config.to_toml())
        assert execute(["run", "c.toml", "--out", "run"]) == 2
        assert not (tmp_path / "run").exists()
        return capsys.readouterr().err.splitlines()

    return said


def test_a_cluster_that_is_not_there(
    tmp_path: Path, refused: Callable[[Config], list[str]]
) -> None:
    tls = authority(tmp_path / "tls")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        address = f"tls://127.0.0.1:{nobody.getsockname()[1]}"
        config = configure(cluster=address, tls=tls, settings={"data.limit": 100})
        assert refused(config) == [
            f"pfedes: no connection to {address}: nothing answers there within 5 s; "
            "is the scheduler running?"
        ]


def test_a_certificate_of_somebody_else(
    lonely: Cluster, tmp_path: Path, refused: Callable[[Config], list[str]]
) -> None:
    strange = authority(tmp_path / "strange")
    wrong = configure(cluster=lonely.address, tls=strange, settings={"data.limit": 100})
    (line,) = refused(wrong)
    assert "another authority issued its certificate than yours" in line

    def reason(**settings: str) -> str:
        with pytest.raises((ClusterError, ConfigError)) as refusal:
            Federation(on(lonely, **settings), out=tmp_path / "run").run()
        assert not (tmp_path / "run").exists()
        return str(refusal.value)

    # A scheduler that is known to us need not know us.
    ours = {f"runtime__tls_{kind}": str(strange / f"{kind}.pem") for kind in ("cert", "key")}
    hung_up = "it closed the connection; does it expect tls://, and a certificate of its own"
    assert hung_up in reason(**ours)
    nothing = {f"runtime__tls_{kind}": "" for kind in ("ca", "cert", "key")}
    plain = lonely.address.replace("tls", "tcp")
    assert hung_up in reason(**nothing, runtime__cluster=plain)
    assert "needs certificates: --tls DIR" in reason(**nothing)


def test_certificates_of_dasks_own_configuration(two_nodes: Cluster, tmp_path: Path) -> None:
    files = {"ca-file": "ca.pem", "client.cert": "cert.pem", "client.key": "key.pem"}
    theirs = {f"distributed.comm.tls.{k}": str(two_nodes.tls / file) for k, file in files.items()}
    nothing = {f"runtime__tls_{kind}": "" for kind in ("ca", "cert", "key")}
    with dask.config.set(theirs):
        config = on(two_nodes, train__rounds=1, **nothing)
        assert Federation(config, out=tmp_path / "run").run().finished


def test_a_cluster_without_workers(lonely: Cluster, refused: Callable[[Config], list[str]]) -> None:
    first, last = refused(on(lonely, runtime__wait_for_nodes=1))
    who = f"no worker of {lonely.address} can be used"
    assert first == f"pfedes: warning: {who}: waiting up to 1 s for one to join"
    assert last == f"pfedes: {who}, and none has joined within 1 s"


def test_the_only_worker_is_killed_and_another_comes(tmp_path: Path) -> None:
    """Two nodes that import torch, one after the other, take the time."""
    settings = {"train__rounds": 2}
    gate = Gate(tmp_path / "gate")
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.add("only", "--no-nanny", env=gate.environment)
        cluster.wait_for(1)

        def kill_and_replace() -> None:
            gate.open(0, 1)
            os.kill(gate.holder(0, 2), signal.SIGKILL)
            gate.open(0, 2)
            said = tmp_path / "run" / "run.log"
            wait_until(lambda: "waiting up to 300 s" in said.read_text(), "the wait")
            cluster.add("another", "--no-nanny", env=gate.environment)

        with Meanwhile(kill_and_replace):
            run = Federation(on(cluster, "gated:Gated", **settings), out=tmp_path / "run").run()
    serial = Federation(small("gated:Gated", **{**SETTINGS, **settings}), out=tmp_path / "serial")
    assert result(run) == result(serial.run())
    who = f"no worker of {cluster.address} can be used: waiting up to 300 s for one to join"
    assert who in log_of(run.directory)


def test_workers_that_can_all_not_be_used(
    lonely: Cluster, refused: Callable[[Config], list[str]]
) -> None:
    node = lonely.add("two-threads", "--no-nanny", "--nthreads", "2")
    try:
        lonely.wait_for(1)
        *_, last = refused(on(lonely))
    finally:
        node.end()
    who = f"no worker of {lonely.address} can be used: two-threads: 2 threads"
    assert last.startswith(f"pfedes: {who}")


DEADLY = """
import os
from pfedes import MethodConfig, Standalone

class DeadlyConfig(MethodConfig):
    name: str = "deadly_there:Deadly"

class Deadly(Standalone):
    Config = DeadlyConfig
    def client_round(self, client, download, ctx):
        if client.name == "client-0001":
            os._exit(1)
        return super().client_round(client, download, ctx)
"""


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the code of a method is that the nodes of a cluster do not have."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "deadly_there.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    return str(tmp_path / "code")


@pytest.mark.usefixtures("deadly")
def test_nodes_without_the_users_code_are_left_out(two_nodes: Cluster, tmp_path: Path) -> None:
    config = on(two_nodes, "deadly_there:Deadly", train__rounds=1)
    with pytest.raises(ClusterError, match=r"node\d: .*deadly_there"):
        Federation(config, out=tmp_path / "none").run()


@pytest.mark.repeat  # `test_dispatch.py` lets nodes die thrice that exist only there
def test_users_code_that_kills_its_worker_fails_that_client_only(
    deadly: str, tmp_path: Path
) -> None:
    """Four nodes that import torch take the time."""
    with Cluster(tmp_path / "cluster") as cluster:
        for number in range(4):  # three die of it, and one is left for the others
            cluster.add(f"with{number}", "--no-nanny", env={"PYTHONPATH": deadly})
        cluster.wait_for(4)
        config = on(cluster, "deadly_there:Deadly", train__rounds=1)
        run = Federation(config, out=tmp_path / "run").run()
    reasons = {row["client"]: row["reason"] for row in run.summary["failed_clients"]}
    assert reasons == {"client-0001": "its worker died, 3 times"}
    assert run.rounds[0]["answered"] == 3


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"runtime.fleet": "cluster"}, "needs cluster = 'tls://host:port'"),
        ({"runtime.cluster": "head:8786"}, "runtime.cluster = 'head:8786'"),
        ({"runtime.tls_ca": "ca.pem"}, "belong together: give all three"),
        ({"runtime.deadline": 0}, "runtime.deadline = 0"),
    ],
)
def test_impossible_cluster_settings_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        configure(settings=settings)
    assert why in str(refusal.value)


def test_certificates_that_are_not_there(tmp_path: Path) -> None:
    config = configure(cluster="tls://127.0.0.1:1", tls=tmp_path, settings={"data.limit": 100})
    with pytest.raises(ConfigError, match=r"runtime.tls_ca = .*ca.pem': No such file"):
        Federation(config, out=tmp_path / "run").run()


def test_the_place_of_a_run_is_not_part_of_its_identity() -> None:
    here = configure()
    there = configure(cluster="tls://head:8786", tls="certificates")
    assert there.runtime.tls_key == str(Path("certificates/key.pem").absolute())
    assert there.result_digest() == here.result_digest()
    assert there.local_digest() == here.local_digest()
    assert there.federation_digest() == here.federation_digest()


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pfedes.fleet.dask")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "pfedes.fleet.dask.fleet", raising=False)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'pfedes\[cluster\]'"):
        Federation(configure(cluster="tls://127.0.0.1:1"), out=tmp_path / "run").run()
