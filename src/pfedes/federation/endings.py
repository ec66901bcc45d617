"""What a run says that cannot continue: what failed, where, and how to continue."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pfedes.errors import ClusterError, DiskError, FailedRunError, PfedesError
from pfedes.federation.admission import Verdict
from pfedes.imports import kind_text_and_place
from pfedes.methods.base import Method
from pfedes.store.run_store import RunStore


@contextmanager
def blaming(
    method: Method[Any], function: str, round: int, run: Path | None = None
) -> Iterator[None]:
    """Whatever a method's own code raises at the server is one line that says where.

    Where a `run` exists already, the line says how to continue it.
    """
    try:
        yield
    except PfedesError:
        raise
    except Exception as error:
        where = f"{function}() of {method.name} failed in round {round}"
        remedy = f". Fix that, then run 'pfedes resume {run}'" if run is not None else ""
        raise FailedRunError(f"{where}: {kind_text_and_place(error)}{remedy}") from error


@contextmanager
def resumable(store: RunStore) -> Iterator[None]:
    """A disk or a cluster that is gone ends the run, which has lost nothing by it."""
    try:
        yield
    except (DiskError, ClusterError) as error:
        raise type(error)(
            f"{error}; committed rounds are safe. Fix the problem, then continue with "
            f"'pfedes resume {store.directory}'"
        ) from None


def refuse_a_broken_method(verdicts: Sequence[Verdict], run: Path) -> None:
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
            f"{everyone} of round 1 failed: {alike.pop()}. Fix that, then run 'pfedes resume {run}'"
        )
