"""Worker processes that are started before their work is known.

A worker spends its first second importing torch, and so does the process that needs it. Begun
early, they do so side by side. Nothing heavy is imported here.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pfedes.fleet.process import python, same_imports

MOST = 8
"""Processes begun early: with few clients no more would be of use."""


@dataclass(frozen=True)
class Begun:
    """A worker process that waits for its configuration."""

    process: "subprocess.Popen[bytes]"
    leash: int  # a pipe's end: the worker ends when it closes
    imports: str  # where it looks for modules

    def end(self) -> None:
        """Kills the process, and reaps it."""
        self.process.kill()
        self.process.wait()
        os.close(self.leash)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):  # the rest of a task that will not be read
                    stream.close()


_waiting: list[Begun] = []


def begin(clients: str = "") -> Begun:
    """Starts a worker process; the list of processes shows whose clients it works for, if known."""
    ours, theirs = os.pipe()
    environment = same_imports()
    try:
        process = subprocess.Popen(
            python("-m", "pfedes.fleet.worker_main", str(ours), clients),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[ours],
            process_group=0,  # Ctrl-C is for this process alone
        )
    except OSError:
        os.close(theirs)
        raise
    finally:
        os.close(ours)
    return Begun(process, theirs, environment["PYTHONPATH"])


def begin_early(count: int) -> None:
    """Starts workers for later use, if this process has yet to import torch, too."""
    if "torch" in sys.modules:
        return
    with suppress(OSError):  # a caller that needs one will report it
        for _ in range(min(count, MOST)):
            _waiting.append(begin())


def take(clients: str) -> Begun:
    """One that was begun early, if it is alive and finds the same modules; else a new one."""
    while _waiting:
        begun = _waiting.pop()
        if begun.process.poll() is None and begun.imports == same_imports()["PYTHONPATH"]:
            return begun
        begun.end()
    return begin(clients)


def dismiss() -> None:
    """Ends the workers that were not taken."""
    while _waiting:
        _waiting.pop().end()


def likely_workers(file: Path | None, settings: Iterable[str], **options: Any) -> int:
    """How many workers a command line will probably want.

    A guess, because reading a configuration properly takes torch: one too many is dismissed, one
    that is missing is started later.
    """
    said: dict[str, Any] = {}
    with suppress(
        OSError, ValueError, TypeError, AttributeError, RecursionError
    ):  # errors are reported later
        tree = tomllib.loads(file.read_text(encoding="utf-8")) if file is not None else {}
        said = {**tree.get("partition", {}), **tree.get("runtime", {})}
    for setting in settings:
        key, _, value = setting.partition("=")
        said[key.rpartition(".")[2].strip()] = value.strip().strip("\"'")
    said |= {key: value for key, value in options.items() if value is not None}
    if said.get("cluster") or said.get("fleet", "workers") != "workers":
        return 0
    numbers = [os.cpu_count() or 1]
    for key in ("workers", "clients"):
        with suppress(KeyError, TypeError, ValueError):
            numbers.append(int(said[key]))
    if "workers" in said and said["workers"] != "auto":
        numbers = numbers[1:]
    return max(0, min(numbers, default=0))
