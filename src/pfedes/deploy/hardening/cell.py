"""Checks every message before FLARE does: its sender, by the connection, and its request.

FLARE answers every request that names a handler, forwards messages between participants, and takes
the sender's name from a header that the sender writes. Its filter hooks do not help: they run after
a message was decoded, they see only requests that end here, and a hook for one topic hides the hook
for all topics. So the guard is the cell itself, to which connections deliver their messages.
"""

import logging
import time
from typing import Any

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    MessageHeaderKey,
    MessageType,
    ReturnCode,
    ReturnReason,
)
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamDataType,
    StreamHeaderKey,
)
from nvflare.private.defs import CellMessageHeaderKeys, ClientType

from pfedes.deploy.hardening.doors import ProcessKind, doors_between, kind_of
from pfedes.deploy.hardening.unix import UnixDriver
from pfedes.deploy.names import ADMIN, SERVER

log = logging.getLogger(__name__)

REFUSED = "refused"
MOST_LINES = 1000  # in the log: a refused sender must not be able to fill a disk
# Addresses to connect to, and marks of routes that a federation does not have.
DROPPED = (MessageHeaderKey.CONN_URL, MessageHeaderKey.SERVER_TRANSIT_REQUIRED)


class GuardedCell(CoreCell):  # type: ignore[misc]  # FLARE has no types
    """A cell that accepts from each connection only what its other end may send."""

    def process_message(
        self, endpoint: Endpoint, connection: Connection, app_id: int, message: Message
    ) -> None:
        try:
            why = self._why_not(endpoint, connection, message)
        except Exception as error:  # of a header of another type than any of ours
            why = f"a message that cannot be read ({type(error).__name__})"
        if why:
            self._refuse(endpoint, message, why)
            return
        for key in DROPPED:
            message.remove_header(key)
        # The route is the sender's word, and FLARE keeps statistics for every name in it.
        origin = message.get_header(MessageHeaderKey.ORIGIN)
        message.set_header(MessageHeaderKey.ROUTE, [(origin, time.time())])
        super().process_message(endpoint, connection, app_id, message)

    def _why_not(self, endpoint: Endpoint, connection: Connection, message: Message) -> str:
        """Why a message is refused; '' for one that may pass."""
        header = message.get_header
        me, peer = self.my_info.fqcn, endpoint.name
        origin = header(MessageHeaderKey.ORIGIN)
        destination = header(MessageHeaderKey.DESTINATION)
        if connection is self.communicator.conn_manager.null_conn:
            return "" if origin == destination == me else "it was not sent by this process"
        if why := self._why_not_peer(peer, connection):
            return why
        if not may_speak_for(me, peer, origin):
            return f"{peer} cannot speak for {origin!r:.80}"
        if header(MessageHeaderKey.SECURE) or header(MessageHeaderKey.ENCRYPTED):
            return "it is encrypted for one receiver; no message of a federation is"
        if why := _why_not_identity(origin, message):
            return why
        return self._why_not_content(origin, destination, message)

    def _why_not_peer(self, peer: str, connection: Connection) -> str:
        """Whether the other end of a connection is what its name says, and may be a neighbour."""
        inner = isinstance(connection.connector.driver, UnixDriver)
        if not is_neighbour(self.my_info.fqcn, peer, inner=inner):
            return f"{peer!r:.80} must not connect to this process"
        if inner:
            return ""  # a process of the same user, as the kernel says
        common_name = connection.get_conn_properties().get(DriverParams.PEER_CN.value)
        expected = (
            ADMIN if kind_of(peer) is ProcessKind.ADMIN else self.identity_resolver.resolve(peer)
        )
        if not common_name or common_name != expected:
            return f"{peer!r:.80} shows the certificate of {common_name!r:.80}"
        return ""

    def _why_not_content(self, origin: str, destination: str, message: Message) -> str:
        header = message.get_header
        kind = header(MessageHeaderKey.MSG_TYPE)
        to, back = doors_between(origin, destination), doors_between(destination, origin)
        if kind in (MessageType.REPLY, MessageType.RETURN):
            # FLARE decodes replies before it checks who asked.
            asked = _as_list(header(MessageHeaderKey.REQ_ID))
            awaited = destination != self.my_info.fqcn or any(a in self.waiters for a in asked)
            return "" if back and awaited else "an answer without a request"
        if kind != MessageType.REQ:
            return f"unknown kind of message {kind!r:.80}"
        channel, topic = header(MessageHeaderKey.CHANNEL), header(MessageHeaderKey.TOPIC)
        if channel == STREAM_CHANNEL:
            if topic in (STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC):
                return "" if to or back else f"{origin} and {destination} must not talk"
            if topic != STREAM_DATA_TOPIC:
                return f"unknown part of a stream {topic!r:.80}"
            channel, topic = header(StreamHeaderKey.CHANNEL), header(StreamHeaderKey.TOPIC)
            if channel == CellChannel.RETURN_ONLY:  # the answer to a request that was a stream
                to = back
                channel, _, topic = str(topic).partition(":")
        return "" if (channel, topic) in to else f"not allowed: {channel!r:.80} {topic!r:.80}"

    def _refuse(self, endpoint: Endpoint, message: Message, why: str) -> None:
        """Logs the refusal and answers the request; the answer reveals nothing."""
        seen: set[tuple[str, str]] = self.__dict__.setdefault("_logged", set())
        key = (endpoint.name, why)
        if key not in seen and len(seen) < MOST_LINES:
            seen.add(key)
            log.warning("%s: refused from %s: %s", self.my_info.fqcn, endpoint.name, why)
        headers = message.headers if isinstance(message.headers, dict) else {}
        if headers.get(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
            return
        if headers.get(MessageHeaderKey.CHANNEL) == STREAM_CHANNEL:
            self._refuse_stream(endpoint, headers)
        elif headers.get(MessageHeaderKey.REPLY_EXPECTED):
            reply = make_reply(ReturnCode.INVALID_REQUEST, error=REFUSED)
            reply.add_headers(
                {
                    MessageHeaderKey.ORIGINAL_HEADERS: {
                        MessageHeaderKey.DESTINATION: headers.get(MessageHeaderKey.DESTINATION)
                    },
                    MessageHeaderKey.DESTINATION: headers.get(MessageHeaderKey.ORIGIN),
                    MessageHeaderKey.REQ_ID: [headers.get(MessageHeaderKey.REQ_ID)],
                    MessageHeaderKey.MSG_TYPE: MessageType.RETURN,
                    MessageHeaderKey.RETURN_REASON: ReturnReason.INTERCEPT,
                }
            )
            self._answer(endpoint, reply)

    def _refuse_stream(self, endpoint: Endpoint, headers: dict[str, Any]) -> None:
        if headers.get(MessageHeaderKey.TOPIC) != STREAM_DATA_TOPIC or headers.get(
            StreamHeaderKey.SEQUENCE
        ):
            return  # once for each stream
        reply = Message(
            {
                MessageHeaderKey.DESTINATION: headers.get(MessageHeaderKey.ORIGIN),
                MessageHeaderKey.MSG_TYPE: MessageType.REQ,
                MessageHeaderKey.CHANNEL: STREAM_CHANNEL,
                MessageHeaderKey.TOPIC: STREAM_ERROR_TOPIC,
                StreamHeaderKey.STREAM_ID: headers.get(StreamHeaderKey.STREAM_ID),
                StreamHeaderKey.STREAM_REQ_ID: headers.get(StreamHeaderKey.STREAM_REQ_ID),
                StreamHeaderKey.FAILED_DESTINATION: headers.get(MessageHeaderKey.DESTINATION),
                StreamHeaderKey.DATA_TYPE: StreamDataType.ERROR,
                StreamHeaderKey.ERROR_MSG: REFUSED,
            }
        )
        self._answer(endpoint, reply)

    def _answer(self, endpoint: Endpoint, reply: Message) -> None:
        me = self.my_info.fqcn
        reply.add_headers(
            {
                MessageHeaderKey.FROM_CELL: me,
                MessageHeaderKey.TO_CELL: endpoint.name,
                MessageHeaderKey.ORIGIN: me,
                MessageHeaderKey.ROUTE: [(me, time.time())],
            }
        )
        self._send_reply(reply, endpoint)


def is_neighbour(me: str, peer: str, *, inner: bool) -> bool:
    """Whether a connection to `peer` is one that a federation has.

    `inner` is the connection between a parent and its job, on one machine.
    """
    mine, theirs = kind_of(me), kind_of(peer)
    if inner:
        parent, child = (me, peer) if mine in (ProcessKind.SERVER, ProcessKind.SITE) else (peer, me)
        return (kind_of(parent), kind_of(child)) in (
            (ProcessKind.SERVER, ProcessKind.SERVER_JOB),
            (ProcessKind.SITE, ProcessKind.SITE_JOB),
        ) and child.startswith(f"{parent}.")
    if mine is ProcessKind.SERVER:
        return theirs in (ProcessKind.SITE, ProcessKind.SITE_JOB, ProcessKind.ADMIN)
    return mine in (ProcessKind.SITE, ProcessKind.SITE_JOB, ProcessKind.ADMIN) and peer == SERVER


def may_speak_for(me: str, peer: str, origin: Any) -> bool:
    """Whether a neighbour may hand over messages of `origin`: its own, or those it forwards."""
    if not isinstance(origin, str) or kind_of(origin) is None or origin == me:
        return False
    if origin == peer:
        return True
    forwarded = {  # (to, by) -> of whom
        (ProcessKind.SERVER, ProcessKind.SITE): (ProcessKind.SITE_JOB,),
        (ProcessKind.SERVER_JOB, ProcessKind.SERVER): (ProcessKind.SITE, ProcessKind.SITE_JOB),
        (ProcessKind.SITE, ProcessKind.SERVER): (ProcessKind.SERVER_JOB,),
        (ProcessKind.SITE_JOB, ProcessKind.SERVER): (ProcessKind.SERVER_JOB,),
        (ProcessKind.SITE_JOB, ProcessKind.SITE): (ProcessKind.SERVER, ProcessKind.SERVER_JOB),
    }
    mine, by = kind_of(me), kind_of(peer)
    if mine is None or by is None or kind_of(origin) not in forwarded.get((mine, by), ()):
        return False
    return (
        by is not ProcessKind.SITE
        or mine is not ProcessKind.SERVER
        or origin.startswith(f"{peer}.")
    )


def _why_not_identity(origin: str, message: Message) -> str:
    """FLARE looks tokens up by the name in a header: it must be the sender's."""
    if kind_of(origin) in (ProcessKind.SERVER, ProcessKind.SERVER_JOB):
        return ""
    is_admin = kind_of(origin) is ProcessKind.ADMIN
    name = message.get_header(CellMessageHeaderKeys.CLIENT_NAME)
    if name not in (None, ADMIN if is_admin else origin.partition(".")[0]):
        return f"{origin} signs as {name!r:.80}"
    kind = message.get_header(CellMessageHeaderKeys.CLIENT_TYPE)
    if kind not in (None, ClientType.ADMIN if is_admin else ClientType.REGULAR):
        return f"{origin} registers as {kind!r:.80}"
    return ""


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
