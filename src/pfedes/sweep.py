"""Many runs as one job that can be interrupted and goes on where it was."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pfedes.children import python, same_imports
from pfedes.config import Config
from pfedes.errors import StoreError
from pfedes.run import Run, open_run

POLL = 0.2  # seconds


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: what to run, and where. Its directory is an ordinary run directory."""

    name: str
    config: Config
    directory: Path
    point: Mapping[str, Any] = field(default_factory=dict)  # where in a grid, if in one

    @property
    def rounds(self) -> int:
        return self.config.train.rounds

    def rounds_done(self) -> int:
        manifests = self.directory / "state" / "manifests"
        return max((int(path.stem) for path in manifests.glob("[0-9]*.json")), default=0)

    def finished(self) -> bool:
        """Whether it need not be run again. Another run in its place is an error."""
        if not (self.directory / "state").is_dir():
            return False
        run = open_run(self.directory)
        if not _same(run.config, self.config):
            raise StoreError(
                f"{self.directory} holds a run with other settings: choose another --out"
            )
        return run.finished and run.config.train.rounds == self.rounds


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: a run, or the line that says why not."""

    cell: Cell
    run: Run | None
    reason: str = ""


Watcher = Callable[[Sequence[Cell], Sequence[Outcome]], None]
"""Called now and then with the cells at work and the outcomes so far."""


def run_cells(
    cells: Sequence[Cell], *, jobs: int = 0, watch: Watcher | None = None
) -> list[Outcome]:
    """Runs what is not finished yet, several at a time, each in a process of its own.

    A process of its own keeps one cell's crash from the others; it ends when this one does.
    """
    outcomes = {cell.name: _outcome(cell) for cell in cells if cell.finished()}
    waiting = [cell for cell in cells if cell.name not in outcomes]
    working: dict[str, tuple[Cell, subprocess.Popen[str]]] = {}
    with _killed_at_the_end(working), tempfile.TemporaryDirectory() as place:
        while waiting or working:
            while waiting and len(working) < (jobs or os.cpu_count() or 1):
                cell = waiting.pop(0)
                working[cell.name] = cell, _start(cell, Path(place))
            for name, (cell, process) in list(working.items()):
                if process.poll() is not None:
                    del working[name]
                    outcomes[name] = _outcome(cell, process)
            if watch is not None:
                watch([cell for cell, _ in working.values()], list(outcomes.values()))
            time.sleep(POLL)
    return [outcomes[cell.name] for cell in cells]


def _start(cell: Cell, place: Path) -> "subprocess.Popen[str]":
    if (cell.directory / "state").is_dir():
        words = ["resume", str(cell.directory), "--rounds", str(cell.rounds)]
    else:
        config = place / f"{len(list(place.iterdir()))}.toml"
        config.write_text(cell.config.to_toml())
        words = ["run", str(config), "--out", str(cell.directory)]
    return subprocess.Popen(
        python("-m", "pfedes.leash", *words, "--quiet"),
        env=same_imports(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _outcome(cell: Cell, process: "subprocess.Popen[str] | None" = None) -> Outcome:
    if process is not None:
        said = process.communicate()[1].strip().splitlines()
        if process.returncode:
            why = said[-1] if said else f"ended with code {process.returncode}"
            return Outcome(cell, None, why.removeprefix("pfedes: "))
    return Outcome(cell, open_run(cell.directory))


@contextmanager
def _killed_at_the_end(
    working: "dict[str, tuple[Cell, subprocess.Popen[str]]]",
) -> Iterator[None]:
    try:
        yield
    finally:
        for _, process in working.values():
            process.terminate()
        for _, process in working.values():
            process.communicate()


def _same(found: Config, wanted: Config) -> bool:
    """Whether a run is what is wanted, apart from how long it runs and how it is carried out."""
    # What was derived from the length when the run was made stays as it was made.
    settled = wanted.settled().method.model_dump(by_alias=False)
    derived = [key for key, value in settled.items() if getattr(wanted.method, key) != value]
    method = wanted.method
    if type(found.method) is type(method):
        method = method.model_copy(update={key: getattr(found.method, key) for key in derived})
    rounds = wanted.train.model_copy(update={"rounds": found.train.rounds})
    indifferent = {"train": rounds, "method": method, "runtime": found.runtime}
    return found == wanted.model_copy(update={**indifferent, "compare": found.compare})
