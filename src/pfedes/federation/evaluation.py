"""Scores of all clients, as the server takes them."""

import logging
from collections.abc import Mapping, Sequence

from pfedes.core.protocol import Failure, Fleet, Scored, Task
from pfedes.core.scores import Scores
from pfedes.errors import WireError
from pfedes.federation.listener import Listener
from pfedes.population.simulation import Simulation
from pfedes.results.summary import Row

log = logging.getLogger(__name__)


def evaluated(
    fleet: Fleet,
    listener: Listener,
    tasks: Sequence[Task],
    last: Mapping[str, Scores] | None = None,
) -> tuple[dict[str, Scores], list[Failure]]:
    """The scores of all clients, and why some have none; `last` are the scores before these."""
    scores, failures = {}, []
    asked = {task.client for task in tasks}
    for done, given in enumerate(fleet.evaluate(tasks), 1):
        answer = _with_same_totals(given, last or {})
        if isinstance(answer, Failure):
            log.warning("%s was not evaluated: %s", answer.client, answer.reason)
            failures.append(answer)
        elif answer.client in asked:
            scores[answer.client] = answer.scores
        listener.working("evaluating all clients", done, len(tasks))
    return scores, failures


def first_scores(
    simulation: Simulation, fleet: Fleet, listener: Listener, tasks: Sequence[Task]
) -> tuple[Mapping[str, Scores | None], list[Failure]]:
    """The scores of untrained clients that may tell them."""
    if simulation.scores_are_told:
        return evaluated(fleet, listener, tasks)
    return dict.fromkeys(task.client for task in tasks), []


def in_digits(row: Row) -> str:
    """The mean accuracy of a round, for the log."""
    return "-" if row["accuracy"] is None else f"{row['accuracy']:.4f}"


def _with_same_totals(answer: Scored | Failure, last: Mapping[str, Scores]) -> Scored | Failure:
    if isinstance(answer, Failure):
        return answer
    try:
        answer.scores.check_totals(last.get(answer.client, answer.scores))
    except WireError as error:
        return Failure(answer.client, str(error))
    return answer
