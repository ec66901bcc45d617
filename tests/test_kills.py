"""Real processes, really killed."""

import os
import random
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pfedes import Federation, Run, open_run
from processes import Started
from running import result, rows, small

CONFIG = small(train__rounds=3, models__pool=["cnn5"])


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return result(Federation(CONFIG, out=tmp_path_factory.mktemp("straight") / "run").run())


@pytest.mark.parametrize(
    ("kind", "times"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGINT, 2)]
)
def test_a_stopped_run_continues_as_if_nothing_had_happened(
    kind: signal.Signals, times: int, straight: dict[str, Any], tmp_path: Path
) -> None:
    """An interpreter that imports torch takes the time."""
    directory = tmp_path / "run"
    run = Started(directory, CONFIG)
    run.wait_for_round(times)
    for _ in range(times):
        os.kill(run.pid, kind)
    assert run.end() == 130, run.said
    assert "Traceback" not in run.said
    if times == 1:
        assert f"'pfedes resume {directory}' continues" in run.said
    assert open_run(directory).manifest.round >= times
    assert result(Federation.resume(directory).run()) == straight


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
def test_stopped_before_anything_was_written(kind: signal.Signals, tmp_path: Path) -> None:
    run = Started(tmp_path / "run", CONFIG)
    time.sleep(0.6)
    os.kill(run.pid, kind)
    assert run.end() == (130 if kind == signal.SIGINT else -kind)
    assert "Traceback" not in run.said
    assert not (tmp_path / "run").exists()


def answers(directory: Path) -> int:
    """How far clients have got, all together."""
    versions = (directory / "state" / "clients").glob("*/*/*.safetensors")
    newest: dict[str, int] = {}
    for path in versions:
        newest[path.parts[-3]] = max(int(path.stem), newest.get(path.parts[-3], 0))
    return sum(newest.values())


FLEETS: dict[str, dict[str, Any]] = {
    "serial": {"runtime__fleet": "serial"},
    "workers": {"runtime__fleet": "workers", "runtime__workers": 1},
}
"""One worker is killed like two."""


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.repeat)])
@pytest.mark.parametrize("fleet", FLEETS)
def test_kills_at_random_moments(fleet: str, kills: int, tmp_path: Path) -> None:
    """Interpreters that import torch take the time, with workers twice as many."""
    survive(kills, tmp_path, fleet)


@pytest.mark.repeat
@pytest.mark.parametrize(("mode", "fleet"), [("central", "serial"), ("local", "workers")])
def test_kills_with_noise_give_the_same_bits_and_charge_nobody_twice(
    mode: str, fleet: str, tmp_path: Path
) -> None:
    run = survive(20, tmp_path, fleet, privacy__mode=mode, privacy__noise=0.01)
    numbers = list(range(1, run.manifest.round + 1))
    assert [row["round"] for row in rows(run.directory / "privacy.jsonl")] == numbers
    assert run.summary["privacy"]["releases"] == [len(numbers)] * 4


def survive(kills: int, tmp_path: Path, fleet: str, **settings: Any) -> Run:
    """kill -9, to the whole process group or (with workers) to the main process alone.

    Every kill waits for a round and a half at most and may be noticed two rounds late, so that
    four rounds for each are enough on a busy machine, too.
    """
    rounds = 4 * kills
    tiny: dict[str, Any] = {"train__rounds": rounds, "data__limit": 120, "models__pool": ["cnn5"]}
    straight = result(Federation(small(**tiny, **settings), out=tmp_path / "straight").run())
    config = small(**{**tiny, **FLEETS[fleet], **settings})
    directory, dice, reached = tmp_path / "run", random.Random(20), []
    for number in range(kills):
        run, before = Started(directory, config), answers(directory)
        if number < -(-kills // 5):  # while it starts, before the first commit
            time.sleep(dice.uniform(0, 3))
        else:
            least = before + dice.randint(3, 6)

            def answered(least: int = least) -> bool:
                return answers(directory) >= least

            run.wait_until(answered)
            time.sleep(dice.uniform(0, 0.2))
        assert run.process.poll() is None, f"done before it could be killed: {run.said}"
        if fleet == "workers" and number % 2:
            os.kill(run.pid, signal.SIGKILL)
        else:
            os.killpg(run.pid, signal.SIGKILL)
        run.end()
        reached.append(open_run(directory).manifest.round if directory.exists() else -1)
    assert reached == sorted(reached)
    assert reached[0] < reached[-1] < rounds

    resumed = Federation.resume(directory).run()
    assert result(resumed) == straight
    numbers = list(range(1, rounds + 1))
    assert [row["round"] for row in rows(directory / "rounds.jsonl")] == numbers
    asked = [(row["round"], row["client"]) for row in rows(directory / "clients.jsonl")]
    assert asked == [(r, f"client-{c:04d}") for r in numbers for c in range(4)]
    return resumed


@pytest.mark.parametrize("fleet", FLEETS)
def test_a_disk_that_takes_no_more(fleet: str, tmp_path: Path) -> None:
    """The kernel refuses what is larger than the limit, which a client's state is."""
    config = small(**{"train__rounds": 2, "models__pool": ["cnn5"], **FLEETS[fleet]})
    run = Started(tmp_path / "run", config)
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (10**6, 10**6))
    assert run.end() == 2, run.said
    assert "Traceback" not in run.said
    assert "safetensors: File too large; committed rounds are safe" in run.said
    assert open_run(run.directory).manifest.round == 0
    straight = Federation(small(train__rounds=2, models__pool=["cnn5"]), out=tmp_path / "straight")
    assert result(Federation.resume(run.directory).run()) == result(straight.run())
