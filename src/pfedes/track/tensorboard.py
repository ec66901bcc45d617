"""TensorBoard: `tensorboard/` in the run directory."""

from collections.abc import Mapping
from typing import Any

# An optional dependency; the importer of this module reports if it is missing.
import tensorboard as _installed  # noqa: F401
from torch.utils.tensorboard import SummaryWriter

from pfedes.federation.listener import Listener
from pfedes.results.closing import closing_rows
from pfedes.results.run import Run
from pfedes.results.summary import Row
from pfedes.track.numbers import numbers_of

DIRECTORY = "tensorboard"


class TensorBoardTracker(Listener):
    """A curve for each number of a round, the configuration, and the result with its figures.

    The rows of a run that continues are written again from the run itself. So there are never two
    of a round, nor is one missing, wherever the run was stopped or taken back to.
    """

    def __init__(self) -> None:
        self._writer: SummaryWriter | None = None

    def started(self, run: Run) -> None:
        self.ended()
        directory = run.directory / DIRECTORY
        for earlier in directory.glob("events.out.tfevents.*"):
            earlier.unlink()
        self._writer = SummaryWriter(str(directory))
        self._writer.add_text("config", f"```toml\n{run.config.to_toml()}```")
        if run.manifest.initial_accuracy is not None:
            self._writer.add_scalar("accuracy", run.manifest.initial_accuracy, 0)
        for row in run.rounds:
            self.round_done(row)

    def round_done(self, row: Row) -> None:
        assert self._writer is not None, "a run starts before its first round"
        for name, value in numbers_of(row).items():
            self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()  # a run that is killed keeps what it has said

    def finished(self, run: Run) -> None:
        from pfedes.report.figures import accuracy_figure, distribution_figure

        assert self._writer is not None, "a run starts before it is finished"
        summary, last = run.summary, run.manifest.round
        rows = "\n".join(f"| {name} | {value} |" for name, value in closing_rows(run).items())
        self._writer.add_text("result", f"| | |\n|---|---|\n{rows}", last)
        if summary["accuracies"]:
            curve = accuracy_figure(run.rounds, run.manifest.initial_accuracy)
            self._writer.add_figure("curve", curve, last)
            self._writer.add_figure("clients", distribution_figure(summary["accuracies"]), last)
        results = {f"result/{name}": value for name, value in numbers_of(summary).items()}
        self._writer.add_hparams(parameters(run), results, run_name=".")
        self.ended()

    def ended(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def parameters(run: Run) -> dict[str, bool | str | float | int]:
    """Every setting under its dotted name; lists as text."""
    flat: dict[str, bool | str | float | int] = {}
    tree: Mapping[str, Any] = run.config.model_dump(mode="json", exclude={"compare"})
    for section, keys in tree.items():
        named = keys.items() if isinstance(keys, Mapping) else [("", keys)]
        for key, value in named:
            name = f"{section}.{key}" if key else section
            flat[name] = value if isinstance(value, bool | str | float | int) else str(value)
    return flat
