"""The coordinator's end: what the server's job process runs."""

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from queue import Empty, Queue

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from pfedes.config import configure
from pfedes.core.payload import Payload
from pfedes.core.wire import WireSpec
from pfedes.deploy.app import TASK
from pfedes.deploy.coordinator.fleet import (
    GONE,
    Answered,
    CalledOffError,
    FlareFleet,
    NoMessage,
    coordinate,
)
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.terms import in_force
from pfedes.deploy.messages import to_payload, to_shareable
from pfedes.deploy.revocation import read_revocations
from pfedes.errors import PfedesError, WireError, kind_and_text
from pfedes.federation.admission import printable

log = logging.getLogger(__name__)

REVOKED = NoMessage("no answer: its kit was revoked", silent=True, struck=True)
LOOK = 0.5  # seconds between two checks of the connections
BECKONING = 7 * 24 * 3600  # seconds that a slow site is waited for, while the others continue


class Coordinator(Controller):  # type: ignore[misc]  # FLARE has no types
    """Runs the round loop in the server's job process, from the last committed round on."""

    def __init__(self, directory: str) -> None:
        """`directory` is the federation's, on the coordinator's machine."""
        super().__init__(task_check_period=0.05)
        self._layout = Layout(Path(directory))
        self._fleet: FlareFleet | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to prepare."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to put away: all that matters is committed."""

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,
        result: Shareable,
        fl_ctx: FLContext,
    ) -> None:
        """A late answer: its round is over, and the participant stays at its base."""
        log.warning("%s answered too late", client.name)
        if self._fleet is not None:
            self._fleet.heard(client.name)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        try:
            config = in_force(self._layout, configure(self._layout.config))
            sites = sorted(client.name for client in fl_ctx.get_engine().get_clients())
            ask, beckon = partial(self._ask, fl_ctx, abort_signal), partial(self._beckon, fl_ctx)
            self._fleet = FlareFleet(ask, beckon, config, sites, self._layout)
            coordinate(self._layout, config, self._fleet)
        except CalledOffError as error:
            log.info("the job ends: %s", error)
        except PfedesError as error:
            self._end_in_trouble(str(error), fl_ctx)
        except Exception as error:
            # Untold, FLARE would only end the job, and the next one would end the same way.
            log.exception("the job fails")
            text = f"the coordinator's job failed: {kind_and_text(error)} (server.log says where)"
            self._end_in_trouble(text, fl_ctx)

    def _end_in_trouble(self, text: str, fl_ctx: FLContext) -> None:
        self._layout.write_trouble(text)
        self.system_panic(text, fl_ctx)

    def _ask(
        self, fl_ctx: FLContext, abort: Signal, messages: Mapping[str, Payload], timeout: int
    ) -> Iterator[Answered]:
        """Yields the answers of sites as they come; a text says why a site does not answer."""
        answers: Queue[Answered] = Queue()
        assert self._fleet is not None, "only the fleet asks"
        revoked = self._revoked()
        for site in messages.keys() & revoked:
            answers.put((site, REVOKED))
        for site, message in messages.items():
            if site in revoked:
                continue
            task = Task(
                TASK,
                to_shareable(message),
                timeout=timeout,
                result_received_cb=partial(_received, answers, site, self._fleet.expected(site)),
                task_done_cb=partial(_done, answers, site),
            )
            self.send(task=task, fl_ctx=fl_ctx, targets=[site])
        waiting = set(messages)
        while waiting:
            if abort.triggered:
                raise CalledOffError("the job was aborted")
            try:
                site, answer = answers.get(timeout=LOOK)
            except Empty:
                presence = self._layout.presence()
                for site in waiting:
                    if not presence.has(site):
                        answers.put((site, GONE))
                continue
            if site in waiting:  # what comes second is the end of a task that was answered
                waiting.discard(site)
                # It may have been revoked since it was asked.
                yield site, REVOKED if site in self._revoked() else answer

    def _revoked(self) -> set[str]:
        """Names of the participants that have been expelled so far."""
        return read_revocations(self._layout.revoked).names

    def _beckon(self, fl_ctx: FLContext, site: str) -> None:
        """FLARE's sites keep an answer that is too late to themselves: this one will be in time."""
        heard = partial(self._heard, site)
        message = Payload({}, {"kind": "hello", "client": site})
        task = Task(TASK, to_shareable(message), timeout=BECKONING, result_received_cb=heard)
        self.send(task=task, fl_ctx=fl_ctx, targets=[site])

    def _heard(self, site: str, *, client_task: ClientTask, fl_ctx: FLContext) -> None:
        if self._fleet is not None:
            log.info("%s is free again", site)
            self._fleet.heard(site)


# FLARE only logs what a callback raises, and the job would wait forever: these raise nothing.


def _received(
    answers: Queue[Answered],
    site: str,
    expected: WireSpec,
    *,
    client_task: ClientTask,
    fl_ctx: FLContext,
) -> None:
    result = client_task.result
    if (code := result.get_return_code()) != ReturnCode.OK:
        answers.put((site, NoMessage(printable(f"its site says {code}"))))
        return
    try:
        answers.put((site, to_payload(result, expected)))
    except WireError as error:
        answers.put((site, NoMessage(printable(str(error)))))


def _done(answers: Queue[Answered], site: str, *, task: Task, fl_ctx: FLContext) -> None:
    why = f"no answer: {getattr(task.completion_status, 'value', 'unknown')}"
    answers.put((site, NoMessage(why, silent=True, struck=True)))
