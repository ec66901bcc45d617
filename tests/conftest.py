"""Fixtures: a small configuration, and a data cache that outlives a test run."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from clusters import Cluster
    from flaring import Ground
    from pfedes.deploy.participant.handler import ParticipantHandler
    from recording import Recording

SMALL: Mapping[str, Any] = {
    "data.limit": 200,
    "partition.clients": 4,
    "partition.classes_per_client": 3,
    "models.pool": ["cnn5", "cnn4"],
    "train.rounds": 2,
    "train.epochs": 1,
    "train.batch_size": 16,
    "method.extractor_epochs": 1,
    "runtime.fleet": "serial",
    "runtime.report": False,
}
"""Four clients with two architectures and 200 digits: a round in about half a second.

Without a report, which takes as long as a round: tests that read one ask for it.
"""

# A fixture of a session belongs to a process. Who uses one of these runs in the same process as
# the others who do, so that it is built once.
SHARED = {
    "two_nodes": "cluster",
    "gated": "cluster",
    "rehearsal": "flare",
    "ground": "flare",
    "summed": "secure sum",
    "everything": "paper",
    "crowd": "crowd",
    "lonely": "crowd",
    "compared": "api",
    "browser": "pages",
    "built": "pages",
}

# What ends with the last test of a group: a cluster that waits takes time from all other tests.
_endings: dict[str, list[Callable[[], None]]] = {}

# `make test` tries the same examples every time; `make test-all` looks for new ones.
_ALWAYS: Mapping[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}
settings.register_profile("quick", max_examples=40, derandomize=True, **_ALWAYS)
settings.register_profile("thorough", max_examples=400, **_ALWAYS)
settings.load_profile("quick")


def pytest_configure(config: pytest.Config) -> None:
    state = Path(tempfile.mkdtemp(prefix="pfedes-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(state, ignore_errors=True))
    # Decoded data goes beside pytest's own cache: never into the user's, and only decoded once.
    cache: pytest.Cache | None = getattr(config, "cache", None)
    os.environ["PFEDES_CACHE"] = str(cache.mkdir("pfedes-data") if cache else state / "data")
    # Nor is the user's record of code touched.
    os.environ["PFEDES_STATE"] = str(state)
    os.environ.setdefault("COLUMNS", "80")
    # What is not trained by a fleet would take all cores, of which each test process has one.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_itemcollected(item: pytest.Item) -> None:
    # Not later: xdist reads the groups before it asks this file to change the list of tests.
    for fixture, group in SHARED.items():
        if fixture in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    # Only xdist runs the tests of a group one right after another.
    if "PYTEST_XDIST_WORKER" in os.environ:
        group = _group(item)
        if nextitem is None or _group(nextitem) != group:
            for end in _endings.pop(group, []):
                end()


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker is not None else ""


def pytest_make_parametrize_id(val: object) -> str | None:
    # Both test processes must find the same names: an archive has the time in it.
    return f"{len(val)}-bytes" if isinstance(val, bytes) else None


@pytest.fixture(scope="session", autouse=True)
def _quick_disk() -> Iterator[None]:
    """Waits for no disk: a run does so fifty times, for a power cut that no test can cause.

    Processes that tests start do wait.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which refuses a closed file, too
        yield


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def terminal() -> Iterator[None]:
    """A terminal that can be closed, also where `nohup` started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Callable[..., Recording]":
    """Runs a method and records all that travels, for comparison with its oracle."""
    from recording import Recording

    return lambda method, **settings: Recording(method, tmp_path / "run", monkeypatch, **settings)


@pytest.fixture(scope="session")
def cifar() -> Path:
    """The directory of the real CIFAR-10 and CIFAR-100."""
    path = Path(os.environ.get("PFEDES_DATA", "missing"))
    if not (path / "cifar10").is_dir():
        pytest.skip("needs the real CIFAR-10: set PFEDES_DATA to the directory that holds cifar10/")
    return path.resolve()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser. Not for a session: as long as it runs, asyncio takes its loop for one."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install 'pfedes[dev]'"
    )
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("needs a browser: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Cluster]":
    """A cluster to which nothing happens."""
    from clusters import Cluster

    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.add("node1", "--no-nanny")
        cluster.add("node2", "--no-nanny")
        cluster.wait_for(2)
        _endings.setdefault("cluster", []).append(cluster.end)
        yield cluster


@pytest.fixture(scope="session")
def serial_result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a cluster must give too."""
    from clusters import SETTINGS
    from pfedes import Federation
    from running import result, small

    return result(
        Federation(small(**SETTINGS), out=tmp_path_factory.mktemp("serial") / "run").run()
    )


@pytest.fixture(scope="session")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which `pfedes rehearse` was gone through."""
    from commands import process

    home = tmp_path_factory.mktemp("flare") / "rehearsal"
    done = process("rehearse", "--out", str(home))
    assert done.returncode == 0, done.stderr
    (home / "said.txt").write_text(done.stdout)
    return home


@pytest.fixture(scope="session")
def ground(rehearsal: Path) -> "Iterator[Ground]":
    """The same federation and its people, who join and stay."""
    from flaring import NAMES, Ground, eventually

    ground = Ground(rehearsal, rehearsal.with_name("ground"))
    try:
        for name in NAMES:
            ground.join(name)
        eventually(lambda: all(map(ground.is_joined, NAMES)), "everybody joins")
        _endings.setdefault("flare", []).append(ground.end)
        yield ground
    finally:
        ground.end()


@pytest.fixture
def training_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Participants train in this process, instead of one that has to import torch first."""
    from training_here import WorkerHere

    monkeypatch.setattr("pfedes.deploy.participant.handler.Worker", WorkerHere)


@pytest.fixture
def cells_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of a sweep are in this process, one after another."""
    monkeypatch.setattr("pfedes.sweep.execute.of_this_program", lambda method: True)


@pytest.fixture
def guest(tmp_path: Path, training_here: None) -> "Iterator[ParticipantHandler]":
    """Ada's side of a federation."""
    from guests import ada, terms
    from pfedes.deploy.participant.handler import ParticipantHandler

    guest = ParticipantHandler(ada(tmp_path / "state"), terms().federation)
    guest.seat.state.mkdir(parents=True)
    yield guest
    guest.stop()
