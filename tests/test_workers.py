"""Worker processes give the serial fleet's bits, whatever happens to them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from PIL import Image

from pfedes import Config, Federation, Listener, MethodError, Scores
from pfedes.core.payload import Payload
from pfedes.core.protocol import Failure, Fleet, Reply, Scored, Task
from pfedes.fleet import make_fleet
from pfedes.fleet.messages import Answer, from_answer, from_task, to_answer, to_task
from pfedes.fleet.workers import Worker, insist
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore
from running import result, small

SETTINGS: Mapping[str, Any] = {"train__rounds": 3, "models__pool": ["cnn5"]}


def working(workers: int, method: str = "pfedes", **settings: Any) -> Config:
    fleet = {"runtime__fleet": "workers", "runtime__workers": workers}
    return small(method, **{**SETTINGS, **fleet, **settings})


def children(parent: int) -> list[int]:
    """The worker processes of a process."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            status = (place / "status").read_text()
            command = (place / "cmdline").read_text()
        except OSError:
            continue
        if f"PPid:\t{parent}\n" in status and "pfedes.fleet.worker_main" in command:
            found.append(int(place.name))
    return found


@pytest.mark.parametrize(
    ("method", "augment", "counts"),
    [
        ("pfedes", True, [2]),
        ("fedkd", False, [1]),
        pytest.param("pfedes", True, [1], marks=pytest.mark.repeat),
        pytest.param("pfedes", False, [1, 2], marks=pytest.mark.repeat),
        pytest.param("fedkd", False, [2], marks=pytest.mark.repeat),
    ],
)
def test_serial_and_workers_agree(
    method: str, augment: bool, counts: list[int], tmp_path: Path
) -> None:
    options = {"train__augment": augment, "train__rounds": 2}
    serial = Federation(small(method, **{**SETTINGS, **options}), out=tmp_path / "serial").run()
    expected = result(serial)
    for count in counts:
        run = Federation(working(count, method, **options), out=tmp_path / str(count)).run()
        assert result(run) == expected
    assert not children(os.getpid())


def test_an_unforeseen_exception_ends_the_round_instead_of_hanging_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its answer the loop would wait for a thread that no longer exists."""

    def broken(self: Worker, kind: str, task: Task) -> Answer | None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(Worker, "ask", broken)
    failed: Queue[BaseException] = Queue()

    def run() -> None:
        try:
            Federation(working(2), out=tmp_path / "run").run()
        except BaseException as error:
            failed.put(error)

    Thread(target=run, daemon=True).start()
    assert "nobody foresaw this" in str(failed.get(timeout=240))


def test_a_worker_that_was_told_to_stop_did_not_die(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("", Path("clients"))
    worker.stop()
    answer = insist(worker, "answer", Task("r", "ada", 1, 0, Payload()))
    assert answer == Failure("ada", "its worker process was stopped")
    assert "died" not in caplog.text


def test_begun_with_one_fleet_and_resumed_with_another(tmp_path: Path) -> None:
    straight = result(Federation(small(**SETTINGS), out=tmp_path / "straight").run())
    first = {**SETTINGS, "train__rounds": 1, "runtime__workers": 1}
    Federation(small(**first), out=tmp_path / "run").run()
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace('fleet = "serial"', 'fleet = "workers"'))
    resumed = Federation.resume(tmp_path / "run", rounds=3).run()
    assert result(resumed) == straight


class Assassin(Listener):
    """Kills all workers once a round, when its first client has answered."""

    def __init__(self) -> None:
        self.victims: set[int] = set()
        self.armed = False

    def round_started(self, round: int, clients: object) -> None:
        self.armed = True

    def client_done(self, verdict: object) -> None:
        if self.armed:
            self.armed = False
            for pid in children(os.getpid()):
                self.victims.add(pid)
                os.kill(pid, signal.SIGKILL)


def test_killed_workers_change_nothing(tmp_path: Path) -> None:
    """Four workers, two of them in the place of others, take the time."""
    settings = {**SETTINGS, "train__rounds": 1}
    straight = result(Federation(small(**settings), out=tmp_path / "straight").run())
    assassin = Assassin()
    run = Federation(working(2, train__rounds=1), out=tmp_path / "run", listener=assassin).run()
    assert len(assassin.victims) == 2
    assert result(run) == straight
    assert "a worker died on client-" in (tmp_path / "run" / "run.log").read_text()


DEADLY = """
import os
from typing import Literal
from pfedes import MethodConfig, Standalone

class DeadlyConfig(MethodConfig):
    name: str = "deadly:Deadly"

class Deadly(Standalone):
    Config = DeadlyConfig
    def client_round(self, client, download, ctx):
        if client.name == "client-0001":
            os._exit(1)
        if client.name == "client-0002":
            print("this must not disturb the messages")
            raise RuntimeError("boom")
        return super().client_round(client, download, ctx)
"""


def test_a_client_that_kills_its_worker_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four workers that import torch take the time."""
    (tmp_path / "deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = Federation(working(2, "deadly:Deadly", train__rounds=1), out=tmp_path / "run").run()
    reasons = {row["client"]: row["reason"] for row in run.summary["failed_clients"]}
    assert reasons == {
        "client-0001": "its worker process died 3 times",
        "client-0002": "RuntimeError: boom (deadly.py:16)",
    }
    assert run.rounds[0]["answered"] == 2
    assert "Traceback" in (tmp_path / "run" / "run.log").read_text()


def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    """A command and four workers that import torch take the time."""
    straight = result(Federation(small(**SETTINGS), out=tmp_path / "straight").run())
    (tmp_path / "c.toml").write_text(working(2).to_toml())
    begin = ["run", "c.toml", "--out", "run", "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "pfedes", *begin])
    deadline = time.monotonic() + 240
    while not (tmp_path / "run/state/manifests/00001.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.wait()
    # Resuming at once waits for the old workers to be gone, then continues.
    resumed = Federation.resume(tmp_path / "run").run()
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert result(resumed) == straight


def test_ctrl_c_ends_the_workers_too(tmp_path: Path) -> None:
    """A command and two workers that import torch take the time."""
    (tmp_path / "c.toml").write_text(working(2).to_toml())
    process = subprocess.Popen(
        [sys.executable, "-m", "pfedes", "run", "c.toml", "--out", "run"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 240
    while not (tmp_path / "run/state/manifests/00001.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = children(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everybody gets it
    said = process.communicate(timeout=240)[1]
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "'pfedes resume run' continues" in said
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_messages_come_back_as_they_were() -> None:
    import torch

    task = Task("r", "c", 3, 2, Payload({"x": torch.ones(2)}, {"labels": [1, 2]}))
    kind, back = to_task(from_task("answer", task))
    assert (kind, back.identity()) == ("answer", task.identity())
    for answer in (
        Reply("c", Payload({"x": torch.ones(2)}, {"loss": 0.5, "labels": [1]})),
        Failure("c", "why", (1, 2)),
        Failure("c", "why"),
        Scored("c", Scores(1, 2, 3, 4)),
    ):
        found, log = to_answer(from_answer(answer, "a line"))
        assert log == "a line"
        if isinstance(answer, Reply):
            assert isinstance(found, Reply)
            assert found.payload.digest() == answer.payload.digest()
        else:
            assert found == answer


@pytest.mark.parametrize(
    ("workers", "expected"), [("auto", min(4, os.cpu_count() or 1)), (1, 1), (3, 3), (64, 4)]
)
def test_the_number_of_workers(workers: str | int, expected: int, tmp_path: Path) -> None:
    config = small(runtime__fleet="workers", runtime__workers=workers)
    fleet: Any = make_fleet(Simulation(config), ClientStore(tmp_path))
    assert len(fleet._workers) == expected  # and none is started before there is work
    fleet.close()


def test_workers_that_find_other_data_say_so(tmp_path: Path) -> None:
    """The files changed after the run had read them: nobody learns from a mixture."""
    for label in ("cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for number in range(20):
            grey = Image.new("RGB", (32, 32), (number, number, number))
            grey.save(tmp_path / "pets" / label / f"{number:02d}.png")
    pets: dict[str, Any] = {"data__source": f"folder:{tmp_path}/pets", "data__limit": 0}
    config = working(1, **pets, partition__classes_per_client=2, partition__clients=2)

    def changing(simulation: Simulation, store: ClientStore) -> Fleet:
        Image.new("RGB", (32, 32), "red").save(tmp_path / "pets" / "cat" / "07.png")
        return make_fleet(simulation, store)

    with pytest.raises(MethodError, match="cannot be evaluated: its worker process finds other"):
        Federation(config, out=tmp_path / "run", fleet=changing).run()
    assert not (tmp_path / "run").exists()
    assert Federation(config, out=tmp_path / "run").run().finished


def test_workers_do_not_import_what_lies_around(tmp_path: Path) -> None:
    """As in a run directory from somebody else, in which one types `pfedes resume .`"""
    marker = tmp_path / "executed"
    for module in ("json", "random", "numpy", "sitecustomize"):
        (tmp_path / f"{module}.py").write_text(f"open({str(marker)!r}, 'w')")
    assert Federation(working(1, train__rounds=1), out=tmp_path / "run").run().finished
    assert not marker.exists()


def test_workers_that_cannot_be_started_are_no_reason_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("pfedes.fleet.workers.subprocess.Popen", refuse)
    with pytest.raises(MethodError, match="its worker process died 3 times"):
        Federation(working(2), out=tmp_path / "run").run()
    assert not (tmp_path / "run").exists()
