"""Trackers: what they were told is what the run has, whatever happened to it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import pfedes
from pfedes import Listener
from pfedes.api.spectator import Listeners
from pfedes.errors import ConfigError
from pfedes.results.summary import Row
from pfedes.track.numbers import numbers_of
from pfedes.track.trackers import trackers
from running import rows, small
from tracked import Points, tensorboard_points, wandb_messages, wandb_points

pytest.importorskip("tensorboard", reason="needs the extra 'tensorboard'")
pytest.importorskip("wandb", reason="needs the extra 'wandb'")

READERS = {"tensorboard": tensorboard_points, "wandb": wandb_points}
BOTH = list(READERS)


@pytest.fixture(autouse=True)
def _nobody_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As for a user who has not set up wandb: and no home directory is written to."""
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


def check_agreement(place: Path, found: Points) -> None:
    """One point for each number of each round, equal to that of `rounds.jsonl`."""
    run = pfedes.open_run(place)
    assert run.rounds
    initial = run.manifest.initial_accuracy
    assert initial is not None
    wanted: Points = {"accuracy": [(0, initial)]}
    for row in rows(place / "rounds.jsonl"):
        for name, value in numbers_of(row).items():
            wanted.setdefault(name, []).append((row["round"], value))
    for name, points in wanted.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        values = [value for _, value in points]
        assert [value for _, value in found[name]] == pytest.approx(values, rel=1e-6), name


class Stopping(Listener):
    """Ends a run after its first round, as Ctrl-C does."""

    def round_done(self, row: Row) -> None:
        raise KeyboardInterrupt


def test_what_was_tracked_is_what_the_run_has(tmp_path: Path) -> None:
    """wandb starts a process of its own for every run."""
    place = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        pfedes.run(small(train__rounds=3), out=place, track=BOTH, listener=Stopping(), quiet=True)
    pfedes.resume(place, track=BOTH, quiet=True)
    for read in READERS.values():
        check_agreement(place, read(place))
    pfedes.resume(place, rounds=4, from_round=2, track=BOTH, quiet=True)
    for read in READERS.values():
        check_agreement(place, read(place))
    # The result and its files are there, too.
    summary = json.loads((place / "summary.json").read_text())
    tagged = tensorboard_points(place)
    assert tagged["result/mean_accuracy"][0][1] == pytest.approx(summary["mean_accuracy"])
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(place / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["images"]) == {"curve", "clients"}
    assert {"config/text_summary", "result/text_summary"} <= set(events.Tags()["tensors"])
    (log,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    content = log.read_bytes()
    for name in (b"rounds.jsonl", b"summary.json", b"config.toml", b"mean_accuracy"):
        assert name in content
    assert str(Path(sys.executable)).encode() not in content
    assert {message.run.host for message in wandb_messages(place)} <= {"", "withheld"}


KILLED = """
import os, signal, sys
import pfedes
from pfedes import Listener, configure

class Killed(Listener):
    def started(self, run):
        self.left = 2
    def round_done(self, row):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

both = ["tensorboard", "wandb"]
pfedes.run(sys.argv[1], out=sys.argv[2], listener=Killed(), track=both, quiet=True)
"""


def test_a_killed_run_continues_its_curves(tmp_path: Path) -> None:
    """A process of its own is killed right after the commit of its second round."""
    (tmp_path / "c.toml").write_text(small(train__rounds=3).to_toml())
    place = tmp_path / "run"
    words = [sys.executable, "-c", KILLED, str(tmp_path / "c.toml"), str(place)]
    # What this process has started of wandb would outlive the one that is killed.
    environment = {k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"}
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert pfedes.open_run(place).manifest.round == 2
    pfedes.resume(place, track=BOTH, quiet=True)
    for read in READERS.values():
        check_agreement(place, read(place))


class Told(Listener):
    """A tracker of the user's."""

    heard: list[str] = []  # noqa: RUF012 - what the only one of a test heard

    def round_done(self, row: Row) -> None:
        self.heard.append(f"round {row['round']}")

    def finished(self, run: pfedes.Run) -> None:
        self.heard.append("finished")

    def ended(self) -> None:
        self.heard.append("ended")


def test_a_custom_tracker_has_a_name(tmp_path: Path) -> None:
    pfedes.run(small(train__rounds=1), out=tmp_path / "r", track="test_track:Told", quiet=True)
    assert Told.heard == ["round 1", "finished", "ended"]


def test_unknown_trackers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, reason in (("tensorbord", "tensorboard"), ("running:small", "subclass")):
        with pytest.raises(ConfigError, match=reason):
            pfedes.run(small(), out=tmp_path / "run", track=name, quiet=True)
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "pfedes.track.wandb", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'pfedes\[wandb\]'"):
        trackers("wandb")
    assert not (tmp_path / "run").exists()


def test_what_is_withheld_is_no_number() -> None:
    row: dict[str, Any] = {"round": 3, "flops": None, "loss": float("nan"), "status": "ok"}
    assert numbers_of({**row, "accuracy": 0.5, "ok": True, "asked": 2}) == {
        "accuracy": 0.5,
        "asked": 2,
    }


class FakeMLflow(ModuleType):
    """As much of MLflow as the example of the documents uses."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.metrics: dict[str, dict[str, float]] = {}
        self.points: list[tuple[str, int, float]] = []
        self.artifacts: list[str] = []
        self.active = ""

    def start_run(self, run_id: str | None) -> SimpleNamespace:
        self.active = run_id or f"id-{len(self.metrics)}"
        known = self.metrics.setdefault(self.active, {})
        return SimpleNamespace(
            info=SimpleNamespace(run_id=self.active), data=SimpleNamespace(metrics=dict(known))
        )

    def log_params(self, parameters: dict[str, Any]) -> None:
        assert parameters["method"] == "pfedes"

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.metrics[self.active].update(metrics)
        self.points.append((self.active, step, metrics["accuracy"]))

    def log_artifact(self, path: Path) -> None:
        assert path.is_file()
        self.artifacts.append(path.name)

    def end_run(self) -> None:
        self.active = ""


def test_the_tracker_of_the_documents_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[1] / "docs" / "extend.md").read_text()
    code = text.split("```python\nimport mlflow\n", 1)[1].split("```")[0]
    mlflow = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    names: dict[str, Any] = {}
    exec("import mlflow\n" + code, names)
    place = tmp_path / "run"
    config = small(train__rounds=2, runtime__report=True)
    with pytest.raises(KeyboardInterrupt):
        pfedes.run(
            config, out=place, listener=Listeners([Stopping(), names["MLflow"]()]), quiet=True
        )
    assert mlflow.active == ""
    run = pfedes.resume(place, listener=names["MLflow"](), quiet=True)
    accuracies = [("id-0", row["round"], row["accuracy"]) for row in run.rounds]
    assert mlflow.points == accuracies
    assert mlflow.artifacts == ["report.html"]
