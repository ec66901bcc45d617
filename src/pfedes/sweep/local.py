"""Runs of a sweep in processes on this machine."""

import os
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from pfedes.fleet.process import python, same_imports
from pfedes.sweep.cells import Cell, Outcome, outcome_of
from pfedes.sweep.child import CellResult, request_of

POLL = 0.1  # seconds


class LocalRunner:
    """Processes on this machine."""

    def __init__(self, cells: list[Cell], jobs: int, *, idle: bool = False) -> None:
        self._waiting = cells
        self._children = [ChildProcess(idle=idle) for _ in range(min(jobs, len(cells)))]

    @property
    def open(self) -> bool:
        return bool(self._waiting) or any(child.cell for child in self._children)

    def step(self) -> list[Outcome]:
        ended = [outcome for child in self._children if (outcome := child.poll()) is not None]
        for child in self._children:
            if self._waiting and child.cell is None:
                child.begin(self._waiting.pop(0))
        time.sleep(POLL)
        return ended

    def working(self) -> dict[str, int]:
        return {child.cell.name: child.cell.rounds_done() for child in self._children if child.cell}

    def close(self) -> None:
        for child in self._children:
            child.close()


class ChildProcess:
    """A process that carries out one cell after another."""

    def __init__(self, *, idle: bool = False, **environment: str) -> None:
        self.cell: Cell | None = None
        self.closed = False
        self._idle = idle
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None

    def begin(self, cell: Cell) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                python("-m", "pfedes.sweep.child_main"),
                env={**same_imports(), **self._environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what concerns us comes with the answer
                text=True,
                # Linux shares the processor among sessions first: one that yields is its own.
                start_new_session=self._idle,
            )
            if self._idle:
                yield_processor(self._process.pid)
        self.cell = cell
        assert self._process.stdin is not None
        # A process that died meanwhile closed the pipe: the next poll finds that out.
        with suppress(BrokenPipeError):
            print(request_of(cell).to_line(), file=self._process.stdin, flush=True)

    def poll(self) -> Outcome | None:
        """The outcome of the cell, once it is known."""
        if self.cell is None or self._process is None or self._process.stdout is None:
            return None
        if not select.select([self._process.stdout], [], [], 0)[0]:
            return None
        cell, self.cell = self.cell, None
        if answer := self._process.stdout.readline():
            result = CellResult.from_line(answer)
        else:  # it has died
            result = CellResult(f"ended with code {self._process.wait()}", failed=True)
            self._end()
        if not result.reason:
            return outcome_of(cell)
        return Outcome(cell, None, result.reason, result.failed)

    def close(self) -> None:
        """Ends the process."""
        self.closed = True
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


LOWEST_PRIORITY = 19


def yield_processor(pid: int) -> None:
    """Gives a process that leads its session the lowest priority, and its session, too."""
    with suppress(OSError):  # it has ended, or this is not Linux
        os.setpriority(os.PRIO_PROCESS, pid, LOWEST_PRIORITY)
        Path(f"/proc/{pid}/autogroup").write_text(str(LOWEST_PRIORITY))
