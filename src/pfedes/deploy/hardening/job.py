"""The process of a job: `python -m pfedes.deploy.hardening.job client|server PARENT ARGUMENTS`."""

import os
import runpy
import sys

from pfedes.deploy.hardening.install import harden
from pfedes.fleet.process import end_without_parent

MODULES = {
    "client": "nvflare.private.fed.app.client.worker_process",
    "server": "nvflare.private.fed.app.server.runner_process",
}


def keep_going() -> None:
    """What one site answers ends no job: FLARE would end everybody's by some return codes."""
    from nvflare.private.fed.server.server_runner import ServerRunner

    ServerRunner.ABORT_RETURN_CODES = ()


def main() -> None:
    role = sys.argv.pop(1)
    # FLARE would try to reach a parent that is gone for minutes or forever, without a pause.
    end_without_parent(int(sys.argv.pop(1)))
    os.umask(0o077)  # only the owner may read what FLARE writes
    harden()
    if role == "server":
        keep_going()
    runpy.run_module(MODULES[role], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
