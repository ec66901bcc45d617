"""FLARE's processes: `python -m pfedes.deploy.process server|client WORKSPACE NAME LEASH`."""

import os
import runpy
import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.farewell import farewell
from pfedes.deploy.hardening.install import harden
from pfedes.deploy.names import INNER
from pfedes.fleet.process import end_with


def main() -> None:
    role, workspace, name, leash = sys.argv[1:]
    os.umask(0o077)  # only the owner may read what FLARE writes
    last: list[Callable[[], None]] = []
    end_with(int(leash), lambda: _end_group(last))
    harden()
    if role == "server":
        # Only in the server: the import takes a moment, and a site accepts no connections.
        from pfedes.deploy import blame, guard

        layout = Layout(Path(workspace).parent)
        guard.install(layout.revoked)
        blame.install(layout)
    else:
        last.append(farewell())
    module = f"nvflare.private.fed.app.{role}.{role}_train"
    sys.argv = [
        module, "-m", workspace, "-s", f"fed_{role}.json", "--set", "secure_train=true",
        *([f"uid={name}"] if role == "client" else []),
        "org=pfedes", "config_folder=config",
    ]  # fmt: skip
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_group(last: Iterable[Callable[[], None]]) -> None:
    """Ends FLARE's job processes, too, and removes what the parent cannot remove any more."""
    for word in last:
        word()
    shutil.rmtree(os.environ[INNER], ignore_errors=True)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
