"""No files in messages.

FLARE can attach a file to a message: a `Datum` names it. Whoever takes in a `Datum` as a part of a
message, and sends that part back, attaches the file that the *sender* has named, whichever its user
can read. FLARE sends cookies back: a site those of a task, after the filter of what leaves, and the
server's job those of a heartbeat. Files that come with a message are written below /tmp, where
nobody removes them.
"""

from typing import Any, NoReturn

from nvflare.fuel.utils import fobs
from nvflare.fuel.utils.class_loader import get_class_name
from nvflare.fuel.utils.fobs import fobs as registry
from nvflare.fuel.utils.fobs import lobs
from nvflare.fuel.utils.fobs.datum import Datum, DatumManager, DatumType

from pfedes.errors import WireError

ATTACHED = (DatumType.TEXT, DatumType.BLOB)  # how FLARE sends a long text, and long bytes


class NoAttachment(fobs.Decomposer):  # type: ignore[misc]  # FLARE has no types
    """A `Datum` is no part of a message: FLARE itself only refers to it."""

    def supported_type(self) -> type:
        kind: type = Datum
        return kind

    def decompose(self, target: Any, manager: DatumManager = None) -> NoReturn:
        raise WireError("attachments do not travel as objects")

    def recompose(self, data: Any, manager: DatumManager = None) -> NoReturn:
        raise WireError("attachments are not taken in as objects")


def refuse_files() -> None:
    """In this process, whether or not FLARE has registered its own handling before."""
    registry._decomposers[get_class_name(Datum)] = NoAttachment()
    DatumManager.add_datum = _add
    lobs.get_datum_dir = _no_directory


def _add(manager: Any, datum: Any) -> None:
    if datum.datum_type not in ATTACHED:  # FLARE takes any other kind for a file
        raise WireError("files are not attached to messages")
    manager.datums[datum.datum_id] = datum


def _no_directory() -> NoReturn:
    raise WireError("files that come with a message are not taken in")
