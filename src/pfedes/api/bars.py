"""Progress displays for terminals, pipes and notebooks."""

import html
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from pfedes.formatting import clock


class Bars(Protocol):
    """Displays bars and lines of text."""

    moves: bool
    """Whether bars can be seen to move; elsewhere lines have to do."""

    def say(self, line: str) -> None:
        """Adds a line that stays."""
        ...

    def bar(self, label: str, done: float, total: float, note: str, counted: str) -> None:
        """Shows how far something is; `counted` says it in words."""
        ...

    def advance(self, label: str) -> None:
        """Moves a bar by one."""
        ...

    def hide(self, label: str) -> None:
        """Takes a bar away."""
        ...

    def stop(self) -> None:
        """Ends the display."""
        ...


def bars_here() -> Bars:
    """Those that fit the place where this process is used."""
    return NotebookBars() if in_notebook() else TerminalBars()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return hasattr(ipython.get_ipython(), "kernel") if ipython is not None else False


class DoneColumn(ProgressColumn):
    """How much is done: in the unit of the bar, else in steps."""

    def render(self, task: Task) -> Text:
        steps = f"{task.completed:.0f}/{task.total:.0f}"
        return Text(task.fields["counted"] or steps)


class TerminalBars:
    """Bars on a terminal, by standard error; in a pipe lines alone."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.moves = self.console.is_terminal
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            DoneColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            speed_estimate_period=3600,  # seconds: rounds may take minutes
        )
        self._tasks: dict[str, TaskID] = {}

    def say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)

    def bar(self, label: str, done: float, total: float, note: str, counted: str) -> None:
        if not self.moves:
            return
        if label not in self._tasks:
            self._tasks[label] = self._bars.add_task(label, total=total, note=note, counted="")
            self._bars.start()
        self._bars.update(
            self._tasks[label], completed=done, total=total, note=note, counted=counted
        )

    def advance(self, label: str) -> None:
        if (bar := self._tasks.get(label)) is not None:
            self._bars.advance(bar)

    def hide(self, label: str) -> None:
        if (bar := self._tasks.pop(label, None)) is not None:
            self._bars.remove_task(bar)

    def stop(self) -> None:
        if self._bars.live.is_started:
            with suppress(OSError):  # the terminal may be closed
                self._bars.stop()


@dataclass(frozen=True)
class _Bar:
    done: float
    total: float
    note: str = ""
    counted: str = ""
    began: float = 0.0  # on the monotonic clock, with what was done by then
    first: float = 0.0

    def words(self, label: str) -> str:
        spent, steps = time.monotonic() - self.began, self.done - self.first
        left = spent / steps * (self.total - self.done) if steps > 0 else 0.0
        parts = [
            f"{label}: {self.counted or f'{self.done:.0f} of {self.total:.0f}'}",
            self.note,
            f"{clock(left)} left" if left >= 1 else "",
        ]
        return ", ".join(filter(None, parts))


class NotebookBars:
    """One output of a cell that is replaced as things move on: no widgets are needed."""

    moves = True
    EVERY = 0.25  # seconds between updates: each is a message to the browser, and is stored
    MOST_LINES = 12

    def __init__(self) -> None:
        self._bars: dict[str, _Bar] = {}
        self._lines: list[str] = []
        self._handle: Any = None
        self._shown = 0.0

    def say(self, line: str) -> None:
        self._lines.append(line)
        self._show()

    def bar(self, label: str, done: float, total: float, note: str, counted: str) -> None:
        known = self._bars.get(label) or _Bar(done, total, began=time.monotonic(), first=done)
        self._bars[label] = replace(known, done=done, total=total, note=note, counted=counted)
        self._show(at_once=done >= total)

    def advance(self, label: str) -> None:
        if label in self._bars:
            bar = self._bars[label]
            self._bars[label] = replace(bar, done=bar.done + 1)
            self._show()

    def hide(self, label: str) -> None:
        self._bars.pop(label, None)

    def stop(self) -> None:
        self._show(at_once=True)

    def __repr__(self) -> str:
        bars = [bar.words(label) for label, bar in self._bars.items()]
        return "\n".join([*self._kept_lines(), *bars])

    def _repr_html_(self) -> str:
        lines = "".join(f"<div>{html.escape(line)}</div>" for line in self._kept_lines())
        bars = "".join(
            f'<div><progress value="{bar.done:g}" max="{max(bar.total, 1):g}"></progress> '
            f"{html.escape(bar.words(label))}</div>"
            for label, bar in self._bars.items()
        )
        return f"<div>{lines}{bars}</div>"

    def _kept_lines(self) -> list[str]:
        """The first, which says what continues, and the latest."""
        if len(self._lines) <= self.MOST_LINES:
            return self._lines
        left_out = len(self._lines) - self.MOST_LINES + 1
        return [self._lines[0], f"... {left_out} lines", *self._lines[2 - self.MOST_LINES :]]

    def _show(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and self._handle is not None and now - self._shown < self.EVERY:
            return
        self._shown = now
        if self._handle is not None:
            self._handle.update(self)
            return
        from IPython.display import display  # there, where this is a notebook

        self._handle = display(self, display_id=True)
