"""The commands that the coordinator's session may give the server.

FLARE has sixty, including a shell, reconfiguration and shutdown. `pfedes serve` and `pfedes status`
need only these.
"""

import logging
from typing import Any

from nvflare.apis.fl_constant import AdminCommandNames
from nvflare.fuel.hci.cmd_arg_utils import split_to_args
from nvflare.fuel.hci.proto import InternalCommands
from nvflare.fuel.hci.server.reg import ServerCommandRegister

log = logging.getLogger(__name__)

COMMANDS = frozenset(
    {
        InternalCommands.CERT_LOGIN,
        InternalCommands.LOGOUT,
        InternalCommands.CHECK_SESSION,
        InternalCommands.GET_CMD_LIST,
        AdminCommandNames.CHECK_STATUS,
        AdminCommandNames.SUBMIT_JOB,
        AdminCommandNames.GET_JOB_META,
        AdminCommandNames.LIST_JOBS,
        AdminCommandNames.ABORT_JOB,
    }
)


class FewCommands(ServerCommandRegister):  # type: ignore[misc]  # FLARE has no types
    """Knows all of FLARE's commands, and carries out few."""

    def process_command(self, conn: Any, command: str) -> None:
        name = next(iter(split_to_args(command)), "")
        if name.rpartition(".")[2] in COMMANDS:
            super().process_command(conn, command)
        else:
            log.warning("refused from the coordinator's session: command %r", name[:80])
            conn.append_error("refused")
