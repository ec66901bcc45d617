"""Closes FLARE's doors in this process, before FLARE starts in it.

Each line replaces a name that FLARE looks up when it builds its parts. The tests send every message
that the installed version of FLARE answers; another version is not started at all.
"""

from nvflare.fuel.f3.cellnet import cell
from nvflare.fuel.f3.communicator import driver_mgr
from nvflare.fuel.f3.drivers import socket_conn
from nvflare.fuel.f3.drivers.base_driver import BaseDriver
from nvflare.fuel.hci.server import builtin
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from pfedes.deploy.hardening.arrays import refuse_arrays
from pfedes.deploy.hardening.attachments import refuse_files
from pfedes.deploy.hardening.cell import GuardedCell
from pfedes.deploy.hardening.commands import FewCommands
from pfedes.deploy.hardening.latecomers import closing_latecomers
from pfedes.deploy.hardening.processors import processors
from pfedes.deploy.hardening.unix import UnixDriver
from pfedes.deploy.hardening.version import check_version

LARGEST_FRAME = 2**26  # bytes; larger messages travel as streams of 1 MiB each


def harden() -> None:
    """To be called first in every process of ours that runs FLARE."""
    check_version()
    if cell.CoreCell is GuardedCell:
        return
    driver_mgr.register(UnixDriver)
    cell.CoreCell = GuardedCell
    # Otherwise one participant ends everybody's job, by a message that cannot be decoded.
    cell._is_server_job_cell = lambda info: False
    socket_conn.MAX_FRAME_SIZE = LARGEST_FRAME
    BaseDriver.add_connection = closing_latecomers(BaseDriver.add_connection)
    refuse_arrays()
    refuse_files()
    ClientRequestProcessors.request_processors = processors()
    builtin.ServerCommandRegister = FewCommands
