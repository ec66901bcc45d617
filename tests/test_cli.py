"""The real command, as a user types it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pfedes
from conftest import SMALL
from pfedes import cli

TINY = [f"--set={key}={json.dumps(value)}" for key, value in SMALL.items()]


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from pfedes.__main__ import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


def refused(*arguments: str, **environment: str) -> str:
    """The one line that a wrong command line gets. Nothing is written."""
    before = sorted(Path().rglob("*"))
    done = command(*arguments, **environment)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("pfedes: ")
    assert sorted(Path().rglob("*")) == before
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--method", "pfedess"], "unknown method 'pfedess'; did you mean 'pfedes'?"),
        (["run", "--data", "cifar11"], "unknown data set 'cifar11'; did you mean 'cifar1"),
        (["run", '--set=models.pool=["cnn7"]'], "unknown model 'cnn7'; did you mean 'cnn"),
        (["run", "--roundz", "3"], "--roundz"),
        (["run", "--set", "method.mu=0"], "method.mu = 0: input should be greater than 0"),
        (["run", "--set", "method.mu=0.6"], "method.mu = 0.6: input should be less than or equal"),
        (["run", "--participation", "0"], "train.participation = 0"),
        (["run", "--participation", "1.5"], "train.participation = 1.5"),
        (["run", "--participation", "nan"], "train.participation = nan"),
        (
            ["run", "--set", "partition.classes_per_client=11"],
            "partition.classes_per_client = 11, but the data has 10 classes",
        ),
        (["run", "--clients", "900"], "the largest number that works is 870"),
        (["run", "--data", "cifar10"], "'cifar10' needs its files: give their directory with"),
        (["run", "--data", "cifar10", "--data-dir", "nowhere"], "nowhere' does not exist"),
        (["run", "--set", "train.epoch=3"], "unknown key 'train.epoch'; did you mean"),
        (["run", "--method", "fedavg"], "set models.pool to one architecture"),
    ],
)
def test_wrong_input(arguments: list[str], said: str) -> None:
    assert said in refused(*arguments, PFEDES_DATA="")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--rounds", "three"], "--rounds"),
        (["rum"], "rum"),
        (["run", "missing.toml"], "cannot read configuration missing.toml: No such file"),
        (["run", "--set", "train.epochs"], "--set takes section.key=value"),
        (["run", "--clients", "0"], "partition.clients = 0"),
        (["resume", "nowhere"], "nowhere is not a run directory"),
        (["report", "nowhere"], "nowhere is not a run directory"),
        (["data", "show", "nothing"], "unknown data set 'nothing'"),
        (["data", "partition", "--out", "no/where.png"], "cannot write no/where.png"),
        (["data", "partition", "--out", "picture.doc"], "cannot write picture.doc"),
    ],
)
def test_more_wrong_input(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same path without a new process: what `main` exits with and prints."""
    assert cli.execute(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("pfedes: ")
    assert said in line
    assert not list(Path().iterdir())


def test_wrong_files(tmp_path: Path) -> None:
    (tmp_path / "typo.toml").write_text("[train]\nround = 3\n")
    assert "did you mean 'train.rounds'" in refused("run", "typo.toml")
    (tmp_path / "broken.toml").write_text("[train\nrounds: 3")
    assert "broken.toml is not TOML" in refused("run", "broken.toml")
    for place in ("truncated", "foreign", "empty"):
        (tmp_path / place).mkdir()
    pq.write_table(pa.table({"img": ["x"], "label": [1]}), tmp_path / "good.parquet")
    data = (tmp_path / "good.parquet").read_bytes()
    for kind in ("train", "test"):
        (tmp_path / "truncated" / f"{kind}-0.parquet").write_bytes(data[:-9])
        pq.write_table(pa.table({"text": ["x"]}), tmp_path / "foreign" / f"{kind}-0.parquet")
    wrong = ("run", "--data", "cifar10", "--data-dir")
    assert "train-0.parquet is not a readable parquet file" in refused(*wrong, "truncated")
    assert "no column 'img'; its columns are: text" in refused(*wrong, "foreign")
    assert "no cifar10 in" in refused(*wrong, "empty")


def test_run_report_and_resume(tmp_path: Path) -> None:
    done = command("run", *TINY, "--out", "first")
    assert done.returncode == 0, done.stderr
    assert "round 2/2  accuracy" in done.stderr
    assert "first/report.html" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80

    assert "already holds a run" in refused("run", *TINY, "--out", "first")
    again = command("resume", "first")
    assert again.returncode == 0
    assert "first is finished: 2 rounds" in again.stderr

    (tmp_path / "first" / "report.html").unlink()
    assert command("report", "first").stdout == "first/report.html\n"
    page = (tmp_path / "first" / "report.html").read_text()
    assert "<svg" in page
    assert set(re.findall(r"[a-z]+://[^/\"]*", page)) == {"http://www.w3.org"}  # a name, no place

    done = command("run", *TINY, "--quiet")
    assert (done.stdout, done.stderr) == ("runs/pfedes-digits\n", "")
    done = command("resume", "runs/pfedes-digits", "--rounds", "3", "--json")
    summary = json.loads(done.stdout)
    assert done.stderr == ""
    assert summary["rounds"] == 3
    assert summary["directory"] == "runs/pfedes-digits"


def test_data_commands(tmp_path: Path) -> None:
    assert "cifar100" in command("data", "list").stdout
    shown = command("data", "show", "digits").stdout
    assert "1,797" in shown
    assert "3 x 32 x 32" in shown
    done = command("data", "partition", "--clients", "5", "--out", "p.png")
    assert done.returncode == 0, done.stderr
    assert len([line for line in done.stdout.splitlines() if line.startswith("client-")]) == 5
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    commands = ("run", "resume", "data", "predict", "export")
    for words in (["--help"], *([name, "--help"] for name in commands)):
        assert cli.execute(words) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("Usage: pfedes")
        assert max(map(len, shown.splitlines())) <= 80
    assert cli.execute(["--version"]) == 0
    assert capsys.readouterr().out.strip() == pfedes.__version__


def test_config_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["config", "--method", "standalone", "--set", "train.lr=0.5"]) == 0
    shown = capsys.readouterr().out
    assert 'name = "standalone"' in shown
    assert "lr = 0.5" in shown


def test_cifar10_sends_443_floats_and_repeats(cifar: Path) -> None:
    """The paper's largest setting, cut in samples: 100 clients, 10 % a round."""
    results = []
    for out, fleet in (("one", "workers"), ("two", "serial")):
        done = command(
            *("run", "--method", "pfedes", "--data", "cifar10", "--data-dir", str(cifar)),
            *(
                "--clients",
                "100",
                "--participation",
                "0.1",
                "--rounds",
                "2",
                "--out",
                out,
                "--json",
            ),
            *("--set", "data.limit=6000", "--set", "train.epochs=1"),
            *("--set", "method.extractor_epochs=1", "--set", f"runtime.fleet={fleet}"),
        )
        assert done.returncode == 0, done.stderr
        clients = [json.loads(row) for row in Path(out, "clients.jsonl").read_text().splitlines()]
        assert len(clients) == 20
        assert all((row["floats_down"], row["floats_up"]) == (443, 443) for row in clients)
        summary = json.loads(done.stdout)
        assert summary["clients"] == 100
        manifest = json.loads(Path(out, "state/manifests/00002.json").read_text())["manifest"]
        results.append(
            (summary["accuracies"], [entry["digest"] for entry in manifest["clients"].values()])
        )
    assert results[0] == results[1]
