"""Notes which participants end a job, for `pfedes serve`, which gives strikes.

FLARE's server fails everybody's job when one site says that its part of the job has failed, or that
it could not begin. So whoever has a kit could end every job. In the server's process, what a site
says is written down before FLARE acts on it.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.private.defs import ERROR_MSG_PREFIX, CellMessageHeaderKeys, JobFailureMsgKey
from nvflare.private.fed.server import job_runner
from nvflare.private.fed.server.fed_server import FederatedServer

from pfedes.deploy.coordinator.layout import Layout

log = logging.getLogger(__name__)

FAILURES = (
    JobReturnCode.EXCEPTION,
    JobReturnCode.UNSAFE_COMPONENT,
    JobReturnCode.CONFIG_ERROR,
    JobReturnCode.INFRASTRUCTURE_ERROR,
    JobReturnCode.ABORTED,
)
"""The words that end a job."""


class Blame:
    """The sites that end the present job."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._noting = threading.Lock()

    def note(self, job: str, site: str) -> None:
        with self._noting:
            before, sites = self._layout.ended()
            if before != job:
                sites = []
            if site not in sites:
                log.warning("%s ends the job %s", site, job)
                self._layout.write_ended(job, [*sites, site])


def install(layout: Layout) -> None:
    """Into FLARE's classes, in the process that is going to be the server."""
    blame = Blame(layout)
    _note_failures(blame)
    _note_starts(blame)


def _note_failures(blame: Blame) -> None:
    process: Callable[..., Any] = FederatedServer.process_job_failure

    def processing(self: Any, request: Any) -> Any:
        said = request.payload if isinstance(request.payload, dict) else {}
        job, code = said.get(JobFailureMsgKey.JOB_ID), said.get(JobFailureMsgKey.CODE)
        client = self.client_manager.clients.get(request.get_header(CellMessageHeaderKeys.TOKEN))
        ends = isinstance(job, str) and client is not None and code in FAILURES
        # Who is not in the job, or said before how it ended, cannot end it.
        if ends and self.engine.job_runner.is_client_outcome_pending(job, client.name):
            blame.note(str(job), client.name)
        return process(self, request)

    FederatedServer.process_job_failure = processing


def _note_starts(blame: Blame) -> None:
    check: Callable[..., Any] = job_runner.check_client_replies
    start: Callable[..., Any] = job_runner.JobRunner._start_run
    starting = threading.local()

    def checking(replies: Any, *args: Any, **kwargs: Any) -> Any:
        job = getattr(starting, "job", "")
        for reply in (replies or ()) if job else ():
            body = getattr(reply.reply, "body", None)
            if isinstance(body, str) and body.startswith(ERROR_MSG_PREFIX):
                blame.note(job, reply.client_name)
        return check(replies, *args, **kwargs)

    def beginning(self: Any, job_id: str, *args: Any, **kwargs: Any) -> Any:
        starting.job = job_id
        try:
            return start(self, job_id, *args, **kwargs)
        finally:
            starting.job = ""

    job_runner.check_client_replies = checking
    job_runner.JobRunner._start_run = beginning
