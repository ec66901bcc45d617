"""The requests that the server may send to a site: to start the only job, and to end it.

FLARE has twenty such requests, including a shell, and checks the sender's rights only if the sender
asks for that. These six are left. Only values that are checked here are taken from a request: the
files of a job are written from our own template, whatever was sent.
"""

import json
import logging
import uuid
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.workspace import Workspace
from nvflare.private.admin_defs import Message, error_reply, ok_reply
from nvflare.private.defs import RequestHeader, TrainingTopic
from nvflare.private.fed.client.admin import RequestProcessor
from nvflare.private.fed.client.scheduler_cmds import (
    CancelResourceProcessor,
    CheckResourceProcessor,
    StartJobProcessor,
)
from nvflare.private.fed.client.training_cmds import AbortAppProcessor, NotifyJobStatusProcessor
from nvflare.private.scheduler_constants import ShareableHeader

from pfedes.deploy.app import site_app
from pfedes.deploy.hardening.cell import REFUSED

log = logging.getLogger(__name__)

CONFIG = "config/config_fed_client.json"
SIGNATURES = ".__nvfl_"  # how the files begin by which FLARE signs a job
LARGEST = 2**20  # bytes of a deployed job


class Narrowed(RequestProcessor):  # type: ignore[misc]  # FLARE has no types
    """FLARE's own processor, given nothing of a request but a few plain headers."""

    def __init__(self, inner: RequestProcessor, *headers: str) -> None:
        self.inner = inner
        self.headers = headers

    def get_topics(self) -> list[str]:
        topics: list[str] = self.inner.get_topics()
        return topics

    def process(self, req: Message, app_ctx: Any) -> Message:
        request = Message(req.topic, {})
        for key in self.headers:
            value = req.get_header(key)
            if key == RequestHeader.JOB_ID and not is_job(value):
                return refusal(f"{value!r:.80} is no job")
            if not isinstance(value, str | int):
                return refusal(f"{req.topic} without {key}")
            request.set_header(key, value)
        return self.inner.process(request, app_ctx)


class Deploy(RequestProcessor):  # type: ignore[misc]  # FLARE has no types
    """Prepares a job, if what the server sends is ours."""

    def get_topics(self) -> list[str]:
        return [TrainingTopic.DEPLOY]

    def process(self, req: Message, app_ctx: Any) -> Message:
        job, name = req.get_header(RequestHeader.JOB_ID), app_ctx.get_client_name()
        if not is_job(job):
            return refusal(f"{job!r:.80} is no job")
        if why := _foreign(req.body):
            return refusal(why)
        workspace = Workspace(root_dir=app_ctx.args.workspace, site_name=name)
        run = Path(workspace.get_run_dir(job))
        if run.exists():
            return refusal(f"job {job} is here already")
        config = Path(workspace.get_app_dir(job)) / CONFIG
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps(site_app()), encoding="utf-8")
        (run / "fl_app.txt").write_text("site", encoding="utf-8")
        meta = Path(workspace.get_job_meta_path(job))
        meta.write_text(json.dumps(job_meta(job, name)), encoding="utf-8")
        return ok_reply(body=f"deployed to {name}")


class Start(StartJobProcessor):  # type: ignore[misc]  # FLARE has no types
    """Starts a job that was deployed."""

    def process(self, req: Message, app_ctx: Any) -> Message:
        job, token = (
            req.get_header(key)
            for key in (RequestHeader.JOB_ID, ShareableHeader.RESOURCE_RESERVE_TOKEN)
        )
        if not is_job(job) or not isinstance(token, str):
            return refusal(f"{job!r:.80} is no job")
        request = Message(req.topic, {})
        request.set_header(RequestHeader.JOB_ID, job)
        request.set_header(RequestHeader.JOB_META, job_meta(job, app_ctx.get_client_name()))
        request.set_header(ShareableHeader.RESOURCE_RESERVE_TOKEN, token)
        return super().process(request, app_ctx)


def processors() -> list[RequestProcessor]:
    """All there are."""
    return [
        Narrowed(CheckResourceProcessor(), RequestHeader.JOB_ID),
        Narrowed(CancelResourceProcessor(), ShareableHeader.RESOURCE_RESERVE_TOKEN),
        Deploy(),
        Start(),
        Narrowed(AbortAppProcessor(), RequestHeader.JOB_ID),
        Narrowed(NotifyJobStatusProcessor(), RequestHeader.JOB_ID, RequestHeader.JOB_STATUS),
    ]


def job_meta(job: str, name: str) -> dict[str, Any]:
    """FLARE's record of a job. It names no other site."""
    return {
        JobMetaKey.JOB_ID.value: job,
        JobMetaKey.JOB_NAME.value: "pfedes",
        JobMetaKey.RESOURCE_SPEC.value: {},
        JobMetaKey.JOB_CLIENTS.value: [{"name": name, "fqcn": name, "fqsn": name, "is_leaf": True}],
    }


def is_job(value: Any) -> bool:
    """Whether this is the name of a job: it becomes the name of a directory, beside others."""
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value
    except ValueError:
        return False


def refusal(why: str) -> Message:
    """Refuses a request; the reason stays here."""
    log.warning("refused from the server: %s", why)
    return error_reply(REFUSED)


def _foreign(body: Any) -> str:
    """The part of a deployed job that is not ours; '' if there is none."""
    if not isinstance(body, bytes) or len(body) > LARGEST:
        return "a job of another form"
    try:
        with zipfile.ZipFile(BytesIO(body)) as archive:
            files = [entry for entry in archive.infolist() if not entry.is_dir()]
            others = [e for e in files if not Path(e.filename).name.startswith(SIGNATURES)]
            if [entry.filename for entry in others] != [CONFIG] or others[0].file_size > LARGEST:
                names = ", ".join(entry.filename for entry in others)
                return f"a job with other files: {names!r:.200}"
            found = json.loads(archive.read(others[0]))
    except Exception as error:  # a damaged archive may raise anything
        return f"a job that cannot be read ({type(error).__name__})"
    return "" if found == site_app() else "a job that names other classes"
