"""How a site and the server start the process of a job: through our own entry point.

FLARE would start its own module, which has no guard yet.
"""

import os
import shlex
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobProcessArgs
from nvflare.app_common.job_launcher.process_launcher import ProcessJobLauncher
from nvflare.utils.job_launcher_utils import get_client_job_args, get_server_job_args

from pfedes.fleet.process import python

ENTRY = "pfedes.deploy.hardening.job"


class SiteLauncher(ProcessJobLauncher):  # type: ignore[misc]  # FLARE has no types
    """Starts jobs at a participant."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> str:
        return _command("client", get_client_job_args(include_exe_module=False), fl_ctx)


class ServerLauncher(ProcessJobLauncher):  # type: ignore[misc]  # FLARE has no types
    """Starts jobs at the coordinator."""

    def get_command(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> str:
        return _command("server", get_server_job_args(include_exe_module=False), fl_ctx)


def _command(role: str, names: list[str], fl_ctx: FLContext) -> str:
    """One line that FLARE splits again; quoted, so that directories may have blanks in them."""
    given = fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS)
    words = []
    for name in names:
        if name in given:
            option, value = given[name]
            options = name == JobProcessArgs.OPTIONS  # several words
            words += [option, *(str(value).split() if options else [str(value)])]
    return shlex.join(python("-m", ENTRY, role, str(os.getpid()), *words))
