"""The model that `pfedes predict` and `pfedes export` work with."""

import logging
from pathlib import Path

from pfedes.cli.display import warned_before
from pfedes.data.dataset import Progress
from pfedes.personal import Personal
from pfedes.run import open_run
from pfedes.seat import Seat, is_seat

log = logging.getLogger(__name__)


def chosen_model(run: Path, client: str, *, best: bool, progress: Progress) -> Personal:
    """The model of a client after the last round, or after the best."""
    with warned_before():
        if is_seat(run):
            personal = Seat(run).personal(client, best=best, progress=progress)
        else:
            personal = open_run(run, progress).personal(client, best=best)
    if not personal.facts.trained:
        log.warning(
            "%s has not trained yet: its model is what newcomers get", personal.facts.client
        )
    return personal
