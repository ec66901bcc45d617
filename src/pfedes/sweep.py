"""Many runs as one job that can be interrupted and goes on where it was."""

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pfedes.children import python, same_imports
from pfedes.config import Config
from pfedes.errors import ConfigError, StoreError
from pfedes.fleet.base import RuntimeConfig
from pfedes.run import Run, open_run

POLL = 0.1  # seconds


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


Watcher = Callable[[Mapping[str, int], Sequence[Outcome]], None]
"""Called now and then with the rounds done of the cells at work, and the outcomes so far."""


class Crew(Protocol):
    """Those who carry out cells."""

    @property
    def open(self) -> bool:
        """Whether there is anything left to do."""
        ...

    def step(self) -> list[Outcome]:
        """Moves everything on, in a moment; what has ended."""
        ...

    def working(self) -> dict[str, int]:
        """The cells at work, by name, and how many rounds each has done."""
        ...

    def close(self) -> None:
        """Ends whatever is under way."""
        ...


def run_cells(
    cells: Sequence[Cell],
    *,
    jobs: int = 0,
    watch: Watcher | None = None,
    cluster: RuntimeConfig | None = None,
) -> list[Outcome]:
    """Runs what is not finished yet, several at a time, in processes of their own.

    One cell's crash is that cell's failure. The processes end when this one does. They are on this
    machine, or on those of a cluster, from where finished runs are brought to their directories.
    """
    outcomes = {cell.name: outcome_of(cell) for cell in cells if cell.finished()}
    waiting = [cell for cell in cells if cell.name not in outcomes]
    if waiting:
        with closing(_crew(waiting, jobs, cluster)) as crew:
            while crew.open:
                for outcome in crew.step():
                    outcomes[outcome.cell.name] = outcome
                if watch is not None:
                    watch(crew.working(), list(outcomes.values()))
    return [outcomes[cell.name] for cell in cells]


def nth(cells: Sequence[Cell], number: int) -> Cell:
    """One cell by its number; the first is 1."""
    if not 1 <= number <= len(cells):
        raise ConfigError(f"--cell {number}: there are {len(cells)} cells, 1 to {len(cells)}")
    return cells[number - 1]


def collected(cells: Sequence[Cell]) -> list[Outcome]:
    """What has become of cells that others run, or ran."""
    return [
        outcome_of(cell)
        if cell.finished()
        else Outcome(cell, None, f"not finished: {cell.rounds_done()} of {cell.rounds} rounds")
        for cell in cells
    ]


def _crew(cells: list[Cell], jobs: int, cluster: RuntimeConfig | None) -> Crew:
    if cluster is None:
        return Hands(cells, jobs or os.cpu_count() or 1)
    # Imported where used: it is an extra.
    from pfedes.cluster.cells import ClusterCrew

    return ClusterCrew(cells, jobs, cluster)


class Hands:
    """Processes on this machine."""

    def __init__(self, cells: list[Cell], jobs: int) -> None:
        self._waiting = cells
        self._hands = [Hand() for _ in range(min(jobs, len(cells)))]

    @property
    def open(self) -> bool:
        return bool(self._waiting) or any(hand.cell for hand in self._hands)

    def step(self) -> list[Outcome]:
        ended = [outcome for hand in self._hands if (outcome := hand.poll()) is not None]
        for hand in self._hands:
            if self._waiting and hand.cell is None:
                hand.begin(self._waiting.pop(0))
        time.sleep(POLL)
        return ended

    def working(self) -> dict[str, int]:
        return {hand.cell.name: hand.cell.rounds_done() for hand in self._hands if hand.cell}

    def close(self) -> None:
        for hand in self._hands:
            hand.close()


class Hand:
    """A process that carries out one cell after another."""

    def __init__(self, **environment: str) -> None:
        self.cell: Cell | None = None
        self.closed = False
        self._environment = environment
        self._place = tempfile.TemporaryDirectory()  # for configurations on their way
        self._process: subprocess.Popen[str] | None = None

    def begin(self, cell: Cell) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                python("-m", "pfedes.leash"),
                env={**same_imports(), **self._environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what concerns us comes with the answer
                text=True,
            )
        self.cell = cell
        assert self._process.stdin is not None
        # A process that died meanwhile closed the pipe: the next poll finds that out.
        with suppress(BrokenPipeError):
            print(
                json.dumps(_words(cell, Path(self._place.name))),
                file=self._process.stdin,
                flush=True,
            )

    def poll(self) -> Outcome | None:
        """What became of the cell, once it is known."""
        if self.cell is None or self._process is None or self._process.stdout is None:
            return None
        if not select.select([self._process.stdout], [], [], 0)[0]:
            return None
        cell, self.cell = self.cell, None
        if answer := self._process.stdout.readline():
            code, said = json.loads(answer)
        else:  # it has died
            code, said = self._process.wait(), ""
            self._end()
        if code:
            return Outcome(cell, None, said or f"ended with code {code}")
        return outcome_of(cell)

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self.closed = True
        self._end()
        self._place.cleanup()

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


def _words(cell: Cell, place: Path) -> list[str]:
    if (cell.directory / "state").is_dir():
        return ["resume", str(cell.directory), "--rounds", str(cell.rounds), "--quiet"]
    config = place / f"{len(list(place.iterdir()))}.toml"
    config.write_text(cell.config.to_toml())
    return ["run", str(config), "--out", str(cell.directory), "--quiet"]


def outcome_of(cell: Cell) -> Outcome:
    """The outcome of a cell that is finished."""
    return Outcome(cell, open_run(cell.directory))


def _same(found: Config, wanted: Config) -> bool:
    """Whether a run is what is wanted, apart from how long it runs and how it is carried out.

    Nor does it matter where the data lie: their checksum is compared when a run goes on.
    """
    # What was derived from the length when the run was made stays as it was made.
    settled = wanted.settled().method.model_dump(by_alias=False)
    derived = [key for key, value in settled.items() if getattr(wanted.method, key) != value]
    method = wanted.method
    if type(found.method) is type(method):
        method = method.model_copy(update={key: getattr(found.method, key) for key in derived})
    rounds = wanted.train.model_copy(update={"rounds": found.train.rounds})
    data = wanted.data.model_copy(update={"dir": found.data.dir})
    indifferent = {"train": rounds, "method": method, "runtime": found.runtime, "data": data}
    return found == wanted.model_copy(update={**indifferent, "compare": found.compare})
