"""The messages of a run that has to end: what failed, where, and how to continue."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

from pfedes.core.payload import Payload
from pfedes.errors import ClusterError, DiskError, FailedRunError, PfedesError
from pfedes.federation.admission import Verdict
from pfedes.imports import kind_text_and_place
from pfedes.methods.base import Method


class _NoPayloadError(Exception):
    """A method returned something else than the payload or state that it must return."""


def payload_of(returned: object) -> Payload:
    """What a method's own code returned, if it is a payload; used inside `blaming`."""
    if not isinstance(returned, Payload):
        raise _NoPayloadError(f"it returned {returned!r:.60}, expected a Payload or State")
    return returned


@contextmanager
def blaming(method: Method[Any], function: str, round: int, continuing: str = "") -> Iterator[None]:
    """Whatever a method's own code does wrong at the server is one line that says where.

    Where a run exists already, the line has the command that is `continuing` it.
    """
    try:
        yield
    except PfedesError:
        raise
    except Exception as error:
        wrong = str(error) if isinstance(error, _NoPayloadError) else kind_text_and_place(error)
        where = f"{_called(method, error) or function}() of {method.name} failed in round {round}"
        remedy = f"Fix that, then run {continuing}" if continuing else ""
        raise FailedRunError(f"{where}: {wrong}", remedy) from error


def _called(method: Method[Any], error: Exception) -> str:
    """Which of its functions raised it; '' if it raised before any of them was at work."""
    for frame, _ in walk_tb(error.__traceback__):
        if frame.f_locals.get("self") is method:
            return frame.f_code.co_name
    return ""


def command_that_continues(run: Path, *, here: bool) -> str:
    """What its owner types; a run whose clients are elsewhere is continued by its coordinator."""
    return f"'pfedes resume {run}'" if here else "'pfedes serve'"


@contextmanager
def resumable(continuing: str) -> Iterator[None]:
    """A disk or a cluster that is gone ends the run, which has lost nothing by it."""
    try:
        yield
    except (DiskError, ClusterError) as error:
        raise type(error)(
            f"{error}; committed rounds are safe. Fix the problem, then continue with {continuing}"
        ) from None


def refuse_a_broken_method(verdicts: Sequence[Verdict], continuing: str) -> None:
    """Ends a run in whose first round nobody answered, all for the same reason.

    The round is not committed: once the code is fixed, a resume does it again.
    """
    alike = {
        verdict.reason.replace(verdict.task.client, "a client")
        for verdict in verdicts
        if verdict.asked and verdict.status == "failed"
    }
    asked = sum(verdict.asked for verdict in verdicts)
    if len(alike) == 1 and all(v.status == "failed" for v in verdicts if v.asked):
        everyone = "the only client" if asked == 1 else f"all {asked} clients"
        raise FailedRunError(
            f"{everyone} of round 1 failed: {alike.pop()}", f"Fix that, then run {continuing}"
        )
