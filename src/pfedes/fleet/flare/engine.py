"""FLARE's processes: `python -m pfedes.fleet.flare.engine server|client KIT NAME LEASH`.

FLARE's own start script sleeps between its looks and outlives who started it. Here a process is
restarted at once when it dies, and ends when its parent does.
"""

import json
import logging
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pfedes.children import python, same_imports
from pfedes.errors import StoreError
from pfedes.files import writing

log = logging.getLogger(__name__)

Role = Literal["server", "client"]
PAUSE = 2.0  # seconds between two starts of a process that dies at once
TRIES = 5  # starts in a row that may fail at once


class Engine:
    """One FLARE process, kept alive."""

    def __init__(self, role: Role, kit: Path, name: str, output: Path) -> None:
        self.role = role
        self.kit = kit.absolute()
        self.name = name
        self.output = output
        self._process: subprocess.Popen[bytes] | None = None
        self._leash = -1
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
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def _start(self) -> None:
        with writing(self.output):
            self.output.parent.mkdir(parents=True, exist_ok=True)
            output = self.output.open("ab")
        ours, theirs = os.pipe()
        with output:
            self._process = subprocess.Popen(
                python("-m", "pfedes.fleet.flare.engine", self.role, str(self.kit), self.name,
                       str(ours)),
                env=same_imports(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[ours],
                process_group=0,  # Ctrl-C is for the parent alone
            )  # fmt: skip
        os.close(ours)
        self._leash = theirs
        self._began = time.monotonic()


def main() -> None:
    role, kit, name, leash = sys.argv[1:]
    threading.Thread(target=_end_with_parent, args=(int(leash),), daemon=True).start()
    module = f"nvflare.private.fed.app.{role}.{role}_train"
    organisation = json.loads(Path(kit, "startup", "organisation.json").read_text("utf-8"))
    sys.argv = [
        module, "-m", kit, "-s", f"fed_{role}.json", "--set", "secure_train=true",
        *([f"uid={name}"] if role == "client" else []),
        f"org={organisation}", "config_folder=config",
    ]  # fmt: skip
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with_parent(leash: int) -> None:
    """The parent holds the other end and never writes: the pipe closes when it is gone."""
    os.read(leash, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
