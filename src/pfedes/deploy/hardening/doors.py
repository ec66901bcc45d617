"""Which messages FLARE's processes may send each other. Everything else is refused.

A federation has four kinds of processes, and the session by which the coordinator submits jobs.
FLARE names their endpoints `server`, `server.JOB`, `NAME`, `NAME.JOB` and `_admin_ID`. The table
says, for a kind of sender and a kind of receiver, which requests a job needs: found by listening to
federations that run, fail, are aborted and resumed, and by reading in FLARE who sends them.
"""

from enum import Enum

from nvflare.apis.fl_constant import AdminCommandNames, ReservedTopic, ServerCommandNames
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic
from nvflare.fuel.f3.streaming.download_service import (
    OBJ_DOWNLOADER_CHANNEL,
    OBJ_DOWNLOADER_TOPIC,
    SOURCE_FAILURE_TOPIC,
)
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name
from nvflare.private.defs import TrainingTopic
from nvflare.private.stream_runner import TOPIC_STREAM_ABORT, TOPIC_STREAM_REQUEST

from pfedes.deploy.names import SERVER

Door = tuple[str, str]  # channel and topic of a request


class ProcessKind(Enum):
    """The kinds of processes in a federation."""

    SERVER = "server"
    SERVER_JOB = "server's job"
    SITE = "site"
    SITE_JOB = "site's job"
    ADMIN = "coordinator's session"


def _doors(channel: str, *topics: str) -> set[Door]:
    return {(channel, topic) for topic in topics}


_BYE = _doors(CellChannel.CELLNET, CellChannelTopic.Bye)  # to a neighbour, by a process that ends
_LARGE = _doors(OBJ_DOWNLOADER_CHANNEL, OBJ_DOWNLOADER_TOPIC, SOURCE_FAILURE_TOPIC)
_MEETING = _doors(CellChannel.SERVER_MAIN, CellChannelTopic.Challenge, CellChannelTopic.Register)

DOORS: dict[tuple[ProcessKind, ProcessKind], frozenset[Door]] = {
    pair: frozenset(doors)
    for pair, doors in {
        (ProcessKind.SITE, ProcessKind.SERVER): {
            *_BYE,
            *_MEETING,
            *_doors(
                CellChannel.SERVER_MAIN,
                CellChannelTopic.HEART_BEAT,
                CellChannelTopic.Quit,
                CellChannelTopic.REPORT_JOB_FAILURE,
            ),
        },
        # What the server may have a site do is narrowed further, see `processors`.
        (ProcessKind.SERVER, ProcessKind.SITE): {*_BYE, *_doors(CellChannel.CLIENT_MAIN, "admin")},
        (ProcessKind.SITE_JOB, ProcessKind.SERVER_JOB): {
            *_LARGE,
            *_doors(
                CellChannel.SERVER_COMMAND,
                ServerCommandNames.GET_TASK,
                ServerCommandNames.SUBMIT_UPDATE,
            ),
            *_doors(
                CellChannel.AUX_COMMUNICATION,
                ReservedTopic.SYNC_RUNNER,
                ReservedTopic.JOB_HEART_BEAT,
                ReservedTopic.TASK_CHECK,
            ),
        },
        (ProcessKind.SERVER_JOB, ProcessKind.SITE_JOB): {
            *_LARGE,
            *_doors(CellChannel.AUX_COMMUNICATION, ReservedTopic.END_RUN),
        },
        (ProcessKind.SITE_JOB, ProcessKind.SITE): {
            *_BYE,
            *_doors(CellChannel.CLIENT_MAIN, TrainingTopic.NOTIFY_JOB_STATUS),
        },
        (ProcessKind.SITE, ProcessKind.SITE_JOB): {
            *_BYE,
            *_doors(CellChannel.CLIENT_COMMAND, AdminCommandNames.ABORT),
        },
        (ProcessKind.SERVER_JOB, ProcessKind.SERVER): {
            *_BYE,
            *_doors(
                CellChannel.SERVER_PARENT_LISTENER,
                ServerCommandNames.GET_CLIENTS,
                ServerCommandNames.HEARTBEAT,
                ServerCommandNames.UPDATE_RUN_STATUS,
            ),
        },
        (ProcessKind.SERVER, ProcessKind.SERVER_JOB): {
            *_BYE,
            *_doors(
                CellChannel.SERVER_COMMAND,
                AdminCommandNames.ABORT,
                ServerCommandNames.HANDLE_DEAD_JOB,
            ),
        },
        (ProcessKind.SITE_JOB, ProcessKind.SERVER): _BYE,
        (ProcessKind.SERVER, ProcessKind.SITE_JOB): _BYE,
        # Which commands the session may give is narrowed further, see `commands`.
        (ProcessKind.ADMIN, ProcessKind.SERVER): {
            *_BYE,
            *_MEETING,
            *_doors(CellChannel.HCI, "command"),
            *_doors(CellChannel.AUX_COMMUNICATION, TOPIC_STREAM_REQUEST, TOPIC_STREAM_ABORT),
        },
        (ProcessKind.SERVER, ProcessKind.ADMIN): {
            *_BYE,
            *_doors(CellChannel.HCI, "SESSION_EXPIRED"),
        },
    }.items()
}


def kind_of(name: str) -> ProcessKind | None:
    """The kind of the endpoint of this name; None for a name that no process of ours has."""
    if is_valid_admin_client_name(name):
        return ProcessKind.ADMIN
    root, *job = name.split(".")
    if not root or len(job) > 1 or not all(job):
        return None
    if root == SERVER:
        return ProcessKind.SERVER_JOB if job else ProcessKind.SERVER
    return ProcessKind.SITE_JOB if job else ProcessKind.SITE


def doors_between(origin: str, destination: str) -> frozenset[Door]:
    """The requests that one endpoint may send another."""
    pair = kind_of(origin), kind_of(destination)
    if pair[0] is None or pair[1] is None or not _belong_together(origin, destination):
        return frozenset()
    return DOORS.get((pair[0], pair[1]), frozenset())


def _belong_together(origin: str, destination: str) -> bool:
    """A job's processes talk to those of the same job, and to their own parents."""
    (root, *job), (other_root, *other_job) = origin.split("."), destination.split(".")
    if job and other_job:
        return job == other_job
    if SERVER in (root, other_root):
        return True
    return root == other_root
