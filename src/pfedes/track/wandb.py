"""Weights & Biases: `wandb/` beside the run directory, sent only if the environment says so.

It makes links, and a run directory with links in it is refused: so it stays outside.
"""

import os
import shutil

# Nor may the library report its own errors to its makers, unless the user wants that.
os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

import wandb

from pfedes.federation.listener import Listener
from pfedes.results.run import Run
from pfedes.results.summary import Row
from pfedes.track.numbers import numbers_of

DIRECTORY = "wandb"
PROJECT = "pfedes"
KEPT = ("config.toml", "environment.json", "summary.json", "rounds.jsonl", "clients.jsonl")
REPORT = "report.html"


class WandbTracker(Listener):
    """One run of wandb for one of ours, with its configuration, rows, summary and files.

    Without WANDB_MODE in the environment nothing is sent: `wandb sync` does that later. Offline,
    the rows of a run that continues are written again from the run itself, unless they were
    synchronised meanwhile; online those follow that the server lacks.
    """

    def __init__(self) -> None:
        self._run: wandb.Run | None = None
        self._logged = 0  # the last round that need not be logged again

    def started(self, run: Run) -> None:
        self.ended()
        mode = os.environ.get("WANDB_MODE", "offline")
        synchronised = mode != "online" and _forget(run)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=run.manifest.run,
            name=run.directory.resolve().name,
            dir=str(run.directory.resolve().parent),
            config=run.config.model_dump(mode="json"),
            mode="offline" if mode == "offline" else None,
            resume="allow" if mode == "online" else None,
            settings=wandb.Settings(
                console="off",
                disable_git=True,
                disable_job_creation=True,
                host="withheld",
                save_code=False,
                silent=True,
                x_disable_meta=True,  # user, command line and paths
                x_disable_stats=True,
            ),
        )
        self._logged = run.manifest.round if synchronised else max(0, self._run.step - 1)
        if self._logged == 0 and run.manifest.initial_accuracy is not None:
            self._run.log({"accuracy": run.manifest.initial_accuracy}, step=0)
        for row in run.rounds:
            self.round_done(row)

    def round_done(self, row: Row) -> None:
        if self._run is not None and row["round"] > self._logged:
            self._run.log(numbers_of(row), step=row["round"])

    def finished(self, run: Run) -> None:
        if self._run is None:
            return
        self._run.summary.update(numbers_of(run.summary))
        artifact = wandb.Artifact(f"run-{run.manifest.run}", type="run")
        for name in (*KEPT, REPORT):
            if (path := run.directory / name).is_file():
                artifact.add_file(str(path))
        self._run.log_artifact(artifact)
        self.ended()

    def ended(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None


def _forget(run: Run) -> bool:
    """Removes what was written before and not sent; whether anything was sent already."""
    synchronised = False
    beside = run.directory.resolve().parent / DIRECTORY
    for place in beside.glob(f"offline-run-*-{run.manifest.run}"):
        if any(place.glob("*.synced")):
            synchronised = True
        elif not place.is_symlink():
            shutil.rmtree(place)
    return synchronised
