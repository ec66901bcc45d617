"""Real clusters for tests: a scheduler and workers over loopback, with TLS."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

from pfedes import Config
from running import small

T = TypeVar("T")

SETTINGS: Mapping[str, Any] = {
    "train__rounds": 3,
    "models__pool": ["cnn5"],
    "runtime__report": False,
}
DASK = [sys.executable, "-m", "dask"]
UNWATCHED = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "500ms",
}
"""Otherwise Dask looks at itself a hundred times a second, also where it waits."""
PATIENCE = 150.0  # seconds, on a machine that has much else to do


def wait_until(reached: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not reached():
        assert time.monotonic() < deadline, f"{what} did not happen within {patience:.0f} s"
        time.sleep(0.02)


def authority(place: Path) -> Path:
    """A directory with ca.pem, cert.pem and key.pem of a new authority."""
    place.mkdir(parents=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for command in (
        ["req", "-x509", *key, "-subj", "/CN=authority", "-keyout", "ca-key.pem", "-out", "ca.pem"],
        ["req", *key, "-subj", "/CN=node", "-keyout", "key.pem", "-out", "node.csr"],
        ["x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca-key.pem",
         "-CAcreateserial", "-out", "cert.pem"],
    ):  # fmt: skip
        subprocess.run(["openssl", *command], cwd=place, check=True, capture_output=True)
    return place


def _end_with_parent() -> None:
    """Tests that are killed leave nothing behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG of <sys/prctl.h>


class Process:
    """One process that we started, in a session of its own."""

    def __init__(self, words: list[str], log: Path, env: Mapping[str, str]) -> None:
        self.log = log
        with log.open("a") as file:
            self.process = subprocess.Popen(
                words,
                stdout=file,
                stderr=file,
                env={**os.environ, **UNWATCHED, **env},
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (no threads of ours, no locks)
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def members(self) -> list[int]:
        """Its own pid and those of the processes below it."""
        found, parents = [self.pid], {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents[int(entry.name)] = int(stat[1])
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def send(self, kind: signal.Signals) -> None:
        """A signal to it and everything below it."""
        for pid in self.members():
            try:
                os.kill(pid, kind)
            except ProcessLookupError:
                continue

    def end(self) -> None:
        if not self.has_ended:  # else its number may be somebody else's
            self.send(signal.SIGCONT)
            self.send(signal.SIGKILL)
            self.process.wait()


class Cluster:
    """A scheduler and nodes; all of it ends with the `with` block."""

    def __init__(self, place: Path, tls: Path | None = None) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.tls = tls or authority(place / "tls")
        self.nodes: dict[str, Process] = {}
        self.file = place / "scheduler.json"
        self.scheduler = self._scheduler()

    def _scheduler(self) -> Process:
        self.file.unlink(missing_ok=True)
        words = ["--port", "0", "--protocol", "tls", "--scheduler-file", str(self.file)]
        scheduler = self._start("scheduler", words, {})
        wait_until(lambda: self._is_up() or scheduler.has_ended, "the scheduler's start")
        assert not scheduler.has_ended, scheduler.log.read_text()
        return scheduler

    def _is_up(self) -> bool:
        try:
            self.address = str(json.loads(self.file.read_text())["address"])
        except (OSError, ValueError):
            return False
        return True

    def _start(self, name: str, words: list[str], env: Mapping[str, str]) -> Process:
        certificates = {"ca-file": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
        for option, file in certificates.items():
            words = [*words, f"--tls-{option}", str(self.tls / file)]
        kind = "scheduler" if name == "scheduler" else "worker"
        loopback = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
        return Process([*DASK, kind, *words, *loopback], self.place / f"{name}.log", env)

    def add(self, name: str, *options: str, env: Mapping[str, str] | None = None) -> Process:
        words = [self.address, "--name", name, "--local-directory", str(self.place / name)]
        if "--nthreads" not in options:
            words += ["--nthreads", "1"]
        words += ["--memory-limit", "4GB", *options]
        self.nodes[name] = self._start(name, words, env or {})
        return self.nodes[name]

    def node_of(self, pid: int) -> Process:
        """The node that a process belongs to."""
        return next(node for node in self.nodes.values() if pid in node.members())

    def wait_for(self, nodes: int) -> None:
        """Until so many have registered with the scheduler."""
        log = self.place / "scheduler.log"
        wait_until(lambda: log.read_text().count("Register worker") >= nodes, f"{nodes} nodes")

    @property
    def settings(self) -> dict[str, Any]:
        """What a configuration needs to use it."""
        files = {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}
        return {
            "runtime__fleet": "cluster",
            "runtime__cluster": self.address,
            **{f"runtime__tls_{key}": str(self.tls / file) for key, file in files.items()},
        }

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for process in [*self.nodes.values(), self.scheduler]:
            process.end()


def on(cluster: Cluster, method: str = "pfedes", **settings: Any) -> Config:
    """The small configuration, to be run on a cluster."""
    return small(method, **{**SETTINGS, **cluster.settings, **settings})


def log_of(directory: Path) -> str:
    return (directory / "run.log").read_text()


class Gate:
    """Holds `gated:Gated` at one client in some rounds of a run, which its seed names."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self.place = place
        self.environment = {"GATE": str(place), "PYTHONPATH": str(Path(__file__).parent)}

    def holder(self, seed: int, round: int) -> int:
        """The process that is held, once there is one."""
        found: list[Path] = []

        def held() -> bool:
            found.extend(self._holders(seed, round))
            return bool(found)

        wait_until(held, "a client's start")
        return int(found[0].name.rpartition("-")[2])

    def _holders(self, seed: int, round: int) -> list[Path]:
        return sorted(self.place.glob(f"{seed}-{round}-*"))

    def open(self, seed: int, *rounds: int) -> None:
        for round in rounds:
            (self.place / f"{seed}-{round}").touch()


class Meanwhile(Generic[T]):
    """Does something beside what the `with` block does, and fails with it."""

    def __init__(self, deed: Callable[[], T]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._deed = deed

    def __enter__(self) -> "Meanwhile[T]":
        self._future = self._pool.submit(self._deed)
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
        self._future.result()

    def result(self) -> T:
        """What came of it."""
        return self._future.result()
