"""Trains a late participant's model with the extractor of a finished run."""

from pfedes.config import Config, validate
from pfedes.config.participant import Participant
from pfedes.errors import MethodError
from pfedes.methods.pfedes import PFedES
from pfedes.results.run import Run

NEVER_SENT = "frozen"  # the extractor rests, and nothing leaves


def adoption(run: Run, participant: Participant, rounds: int | None = None) -> Config:
    """The configuration under which a participant learns from what a run has learned.

    Its terms and its training are the run's. The extractor is the run's last and stays as it is; no
    server takes part, and nothing leaves.
    """
    original = run.original  # its statistics are part of the terms
    method = original.method
    if not (isinstance(method, PFedES) and method.config.sharing == "global"):
        raise MethodError(
            f"{run.directory} shares no extractor: only a run of pFedES can be adopted"
        )
    theirs = {"data", "partition", "models", "aggregation", "compare"}
    tree = run.config.model_dump(mode="json", exclude=theirs)
    tree["method"] |= {
        "sharing": NEVER_SENT,
        "start_from": str((run.store.state / run.manifest.server).absolute()),
    }
    tree["federation"] = original.population.terms().model_dump()
    tree["participants"] = [participant]
    if run.config.runtime.fleet == "cluster":  # theirs
        tree["runtime"] = {}
    tree["train"] |= {"participation": 1.0, "min_uploads": 1}
    if rounds is not None:
        tree["train"]["rounds"] = rounds
    return validate(tree)
