"""The model that `pfedes predict` and `pfedes export` work with."""

import logging
from pathlib import Path

from pfedes.cli._display import warned_before
from pfedes.data.dataset import Progress
from pfedes.deploy.participant.state import ParticipantState, is_seat
from pfedes.results.personal import PersonalModel
from pfedes.results.run import open_run

log = logging.getLogger(__name__)


def chosen_model(
    run: Path,
    client: str,
    *,
    best: bool,
    data_dir: Path | None,
    trust_code: bool,
    progress: Progress,
) -> PersonalModel:
    """The model of a client after the last round, or after the best."""
    with warned_before():
        if is_seat(run):
            personal = ParticipantState(run).personal(
                client, best=best, data_dir=data_dir, trust_code=trust_code, progress=progress
            )
        else:
            opened = open_run(run, progress, data_dir=data_dir, trust_code=trust_code)
            personal = opened.personal(client, best=best)
    if not personal.facts.trained:
        log.warning(
            "%s has not trained yet: this is the model with which new clients start",
            personal.facts.client,
        )
    return personal
