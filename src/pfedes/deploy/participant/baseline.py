"""The same training alone, to compare with what a participant gained by joining."""

import shutil

from pfedes.core.scores import Scores
from pfedes.deploy.participant.state import ParticipantState
from pfedes.federation.loop import Federation
from pfedes.methods.standalone import StandaloneConfig


def trained_alone(seat: ParticipantState) -> Scores | None:
    """The model's scores after as many rounds of the same local training alone."""
    config, method = seat.config, StandaloneConfig()
    rounds = seat.answered()
    changes = {"participation": 1.0, "min_uploads": 1, "patience": 0}
    (person,) = config.participants
    alone = config.model_copy(
        update={
            "train": config.train.model_copy(update={**changes, "rounds": len(rounds)}),
            "method": method,
            "participants": (person.model_copy(update={"methods": (method.name,)}),),
        }
    )
    out = seat.directory / "alone"
    shutil.rmtree(out, ignore_errors=True)
    return Federation(alone, out=out).run().manifest.scores.get(person.name)
