"""Real processes, really killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pfedes import Federation, open_run
from running import result, small

MAIN = [sys.executable, "-c", "from pfedes.cli import main; main()"]
CONFIG = small(train__rounds=3, models__pool=["cnn5"])


def start(directory: Path) -> "subprocess.Popen[str]":
    directory.with_suffix(".toml").write_text(CONFIG.to_toml())
    resuming = (directory / "state").is_dir()
    words = ["resume", str(directory)] if resuming else [
        "run", str(directory.with_suffix(".toml")), "--out", str(directory)
    ]  # fmt: skip
    return subprocess.Popen(
        [*MAIN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_round(directory: Path, round: int, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 60
    while not (directory / "state" / "manifests" / f"{round:05d}.json").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("kind", "code", "rounds"),
    [(signal.SIGINT, 130, [1]), (signal.SIGTERM, 130, [2]), (signal.SIGKILL, -9, [0, 1, 2])],
)
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(
    kind: signal.Signals, code: int, rounds: list[int], tmp_path: Path
) -> None:
    straight = result(Federation(CONFIG, out=tmp_path / "straight").run())
    directory = tmp_path / "run"
    for round in rounds:
        process = start(directory)
        wait_for_round(directory, round, process)
        os.kill(process.pid, kind)
        _, said = process.communicate(timeout=30)
        assert process.returncode == code, said
        assert "Traceback" not in said
        if code == 130:
            assert f"'pfedes resume {directory}' goes on" in said
        assert open_run(directory).manifest.round >= round
    process = start(directory)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    assert result(open_run(directory)) == straight


def test_stopped_before_anything_was_written(tmp_path: Path) -> None:
    process = start(tmp_path / "run")
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "run").exists()
