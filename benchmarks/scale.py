"""A round and all memory, with a hundred, a thousand and ten thousand clients.

Ten clients are asked in every round, each with as many samples, so that a round is the same work.
The runs take turns: each is resumed for a few rounds at a time.
"""

import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from pfedes import Config, Federation, Listener, configure
from pfedes.results.summary import Row

CLIENTS = (100, 1_000, 10_000)
SAMPLES = 50  # of each client
ASKED = 10


def scale(turns: int = 3, rounds: int = 4) -> list[dict[str, Any]]:
    """Seconds of a round, seconds until the first, and the peak of memory, for each N."""
    rows: dict[int, dict[str, Any]] = {}
    seconds: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    with tempfile.TemporaryDirectory() as place, Memory() as memory:
        for clients in CLIENTS:
            memory.peak = 0
            began = time.perf_counter()
            started = Stopwatch()
            Federation(_config(clients), out=Path(place) / str(clients), listener=started).run()
            rows[clients] = {
                "clients": clients,
                "until round 1, s": started.at - began,
                "peak memory, MB": memory.peak,
            }
        for turn in range(1, turns + 1):
            for clients in CLIENTS:
                memory.peak = 0
                stopwatch = Stopwatch()
                directory = Path(place) / str(clients)
                Federation.resume(directory, rounds=1 + turn * rounds, listener=stopwatch).run()
                seconds[clients] += stopwatch.seconds[1:]  # the first one starts the workers
                rows[clients]["peak memory, MB"] = max(
                    rows[clients]["peak memory, MB"], memory.peak
                )
    for clients, row in rows.items():
        row["round, s"] = statistics.median(seconds[clients])
        row["of the smallest"] = row["round, s"] / statistics.median(seconds[CLIENTS[0]])
    return list(rows.values())


def _config(clients: int) -> Config:
    return configure(
        data=f"synthetic:samples={SAMPLES * clients}",
        clients=clients,
        participation=ASKED / clients,
        rounds=1,
        settings={"models.pool": ["cnn5"]},
    )


class Stopwatch(Listener):
    """When the rounds began, and how long each took, commit included."""

    def __init__(self) -> None:
        self.at = 0.0
        self.seconds: list[float] = []
        self._last = 0.0

    def started(self, run: object) -> None:
        self.at = self._last = time.perf_counter()

    def round_done(self, row: Row) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now


class Memory:
    """The peak of this process and its children together, shared pages counted once."""

    def __enter__(self) -> "Memory":
        self.peak = 0.0
        self._done = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        while not self._done.wait(0.25):
            self.peak = max(self.peak, sum(map(_megabytes, _family())))


def _family() -> list[int]:
    mine, found = os.getpid(), [os.getpid()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
            if parent == mine:
                found.append(int(entry.name))
    return found


def _megabytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))
