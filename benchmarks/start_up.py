"""How long one waits before anything happens."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PFEDES = [sys.executable, "-P", "-m", "pfedes"]
FIRST_ROUND = ["run", "--data", "cifar10", "--clients", "10", "--rounds", "1"]


def start_up(repetitions: int = 5) -> list[dict[str, Any]]:
    """Seconds of `pfedes --help`, and until a run on cached CIFAR-10 begins its first round."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        for turn in range(repetitions + 1):
            for name, spent in (
                ("pfedes --help", _until_done([*PFEDES, "--help"])),
                ("run on cached CIFAR-10", _until_started(Path(place) / str(turn))),
            ):
                if turn:  # the first one fills the caches
                    seconds.setdefault(name, []).append(spent)
    return [
        {"command": name, "seconds": statistics.median(times)} for name, times in seconds.items()
    ]


def _until_done(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _until_started(out: Path) -> float:
    began = time.perf_counter()
    process = subprocess.Popen(
        [*PFEDES, *FIRST_ROUND, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("starting at"):
            break
    spent = time.perf_counter() - began
    process.kill()
    process.communicate()
    return spent
