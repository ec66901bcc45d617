"""Keeps a process of FLARE's alive. FLARE itself is not imported here, nor anything else heavy.

FLARE's own start script polls, and outlives the process that started it. Here a process is
restarted at once when it dies, and ends when its parent does.
"""

import logging
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pfedes.deploy.names import INNER
from pfedes.errors import StoreError
from pfedes.files import open_private, writing
from pfedes.fleet.process import python, same_imports

log = logging.getLogger(__name__)

Role = Literal["server", "client"]
PAUSE = 2.0  # seconds between two starts of a process that dies at once
LEAVING = 5.0  # seconds for a process to end by itself, once it is let go
TRIES = 5  # starts in a row that may fail at once


class Engine:
    """One FLARE process, kept alive."""

    def __init__(self, role: Role, workspace: Path, name: str, output: Path) -> None:
        self.role = role
        self.workspace = workspace.absolute()
        self.name = name
        self.output = output
        self.limits: Mapping[str, str] = {}  # additions to its environment
        self._process: subprocess.Popen[bytes] | None = None
        self._leash = -1
        self._inner: tempfile.TemporaryDirectory[str] | None = None
        self._began = 0.0
        self._failed = 0

    def keep_alive(self) -> bool:
        """Starts the process if it is not there; whether it had to be."""
        if self._process is not None and self._process.poll() is None:
            return False
        lived = time.monotonic() - self._began
        if self._process is not None:
            log.warning("the %s process ended (%s)", self.role, self._process.returncode)
            self._failed = self._failed + 1 if lived < 10 * PAUSE else 0
            if self._failed >= TRIES:
                raise StoreError(f"the {self.role} process does not start: see {self.output}")
            time.sleep(max(0.0, PAUSE - lived))
        self.stop()
        self._start()
        return True

    def stop(self) -> None:
        """Ends the process and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        os.close(self._leash)
        with suppress(subprocess.TimeoutExpired):
            process.wait(LEAVING)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if self._inner is not None:
            self._inner.cleanup()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def _start(self) -> None:
        with writing(self.output):
            self.output.parent.mkdir(parents=True, exist_ok=True)
            output = open_private(self.output, "ab")
        # Not in the workspace: a socket cannot be copied, and users copy workspaces.
        self._inner = tempfile.TemporaryDirectory(prefix="pfedes-", ignore_cleanup_errors=True)
        ours, theirs = os.pipe()
        with output:
            self._process = subprocess.Popen(
                python("-m", "pfedes.deploy.process", self.role, str(self.workspace), self.name,
                       str(ours)),
                env={**same_imports(), **self.limits, INNER: self._inner.name},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[ours],
                process_group=0,  # Ctrl-C is for the parent alone
            )  # fmt: skip
        os.close(ours)
        self._leash = theirs
        self._began = time.monotonic()
