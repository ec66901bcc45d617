"""The participant's end: what a site's job process runs."""

import logging
import threading
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, Queue

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from pfedes.core.payload import Payload
from pfedes.deploy.messages import to_payload, to_shareable
from pfedes.deploy.participant.handler import ParticipantHandler
from pfedes.deploy.participant.site_files import read_site
from pfedes.deploy.participant.sum_part import read_identity
from pfedes.store.lock import locked
from pfedes.store.log import logging_into

log = logging.getLogger(__name__)


class Site(Executor):  # type: ignore[misc]  # FLARE has no types
    """Hands messages to the handler. Training is its own process: its end is not the site's."""

    def __init__(self) -> None:
        super().__init__()
        self._open = ExitStack()
        self._guest: ParticipantHandler | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type in (EventType.END_RUN, EventType.ABORT_TASK) and self._guest is not None:
            self._guest.stop()
        if event_type == EventType.END_RUN:
            self._open.close()

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        try:
            message = to_payload(shareable)
            guest = self._seated(fl_ctx)
            if (answer := _interruptible(guest, message, abort_signal)) is not None:
                return to_shareable(answer)
            return make_reply(ReturnCode.TASK_ABORTED)
        except Exception:
            # The text may name files or data: it stays in the log.
            log.exception("a task failed")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)

    def _seated(self, fl_ctx: FLContext) -> ParticipantHandler:
        """The guest, once no other process works in the participant's directory."""
        if self._guest is None:
            workspace = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT))
            site = read_site(workspace)
            identity = read_identity(workspace) if site.privacy.secure_sum else None
            guest = ParticipantHandler(site.participant, site.terms, site.privacy, identity)
            guest.seat.make()
            self._open.enter_context(logging_into(guest.seat.directory / "join.log"))
            self._open.enter_context(locked(guest.seat.state))
            self._open.callback(guest.stop)
            self._guest = guest
        return self._guest


def _interruptible(guest: ParticipantHandler, message: Payload, abort: Signal) -> Payload | None:
    """The guest's answer; None if the task was called off meanwhile."""
    answers: Queue[Payload | Exception] = Queue()

    def work() -> None:
        try:
            answers.put(guest.handle(message))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=work, daemon=True).start()
    while True:
        try:
            answer = answers.get(timeout=0.1)
        except Empty:
            if abort.triggered:
                guest.stop()
                return None
            continue
        if isinstance(answer, Exception):
            raise answer
        return answer
