"""The examples run as they stand."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pfedes
from commands import command
from conftest import SMALL
from running import small

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_a_server_that_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    config = small("trained_head:TrainedHead", train__rounds=3)
    run = pfedes.run(config, out=tmp_path / "run", quiet=True)
    assert "TrainedHead on digits" in repr(run)
    assert run.summary["mean_accuracy"] > run.summary["initial_accuracy"]
    assert all(row["flops_server"] > 0 for row in run.rounds)
    assert {row["floats_down"] for row in run.clients} == {500 * 10 + 10}
    assert {row["floats_up"] for row in run.clients} <= {500 * classes for classes in range(1, 11)}
    # The head that was sent differs from round to round: the server has learned.
    heads = [run.store.server_state(run.store.manifest(n)).digest() for n in run.store.rounds()]
    assert len(set(heads)) == len(heads) > 1


def test_a_custom_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands of a process each, and the processes of a comparison, take the time."""
    shutil.copy(EXAMPLES / "shared_stem.py", tmp_path)
    tiny = [f"--set={k}={json.dumps(v)}" for k, v in SMALL.items() if not k.startswith("method.")]

    def process(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pfedes", *words],
            capture_output=True,
            text=True,
            # As the installed command runs, with one directory of the user's.
            env={**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": "."},
            check=False,
        )

    own = ("--method", "shared_stem:SharedStem", "--set", "method.keep=0.25")
    done = process("run", *tiny, *own, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["method"] == "shared_stem:SharedStem"
    assert summary["directory"] == "runs/shared_stem-SharedStem-digits"
    assert summary["floats_up"] == 2 * 4 * 1216
    monkeypatch.syspath_prepend(str(tmp_path))
    done = command("resume", summary["directory"], "--rounds", "3", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "keep = 0.25" in Path(summary["directory"], "config.toml").read_text()

    done = process("compare", *tiny, "--methods", "standalone,shared_stem:SharedStem", "--json")
    assert [row["method"] for row in json.loads(done.stdout)] == [
        "standalone",
        "shared_stem:SharedStem",
    ]
    done = command("run", *own[:2], "--set", "method.keep=2")
    assert done.returncode == 2
    assert "method.keep = 2: input should be less than or equal to 1" in done.stderr


def test_liars_move_the_mean_and_no_robust_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import byzantine

    tiny = {"train.rounds": 1, "train.epochs": 1, "data.limit": 300, "models.pool": ["cnn5"]}
    more = {"method.extractor_epochs": 2, "train.batch_size": 8, "runtime.fleet": "serial"}
    quiet = {"runtime.report": False}
    clean, *attacked = byzantine.compare({**tiny, **more, **quiet}, tmp_path)
    assert clean["distance"] == 0
    assert len(attacked) == len(byzantine.ATTACKS) * len(byzantine.RULES)
    for row in attacked:
        moved = row["rule"] == "mean"
        assert (row["distance"] > 0.3) if moved else (row["distance"] < 0.1), row
    byzantine.figure([clean, *attacked]).savefig(tmp_path / "byzantine.png")
