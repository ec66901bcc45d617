"""The command line: what it does, says and refuses."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pfedes
from commands import MAIN, command, complaint, process, refused
from conftest import SMALL
from pfedes import cli
from pfedes.cli._display import output

TINY = [f"--set={key}={json.dumps(value)}" for key, value in SMALL.items()]


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
        (["run", "--rounds", "three"], "--rounds"),
        (["rum"], "unknown command 'rum'; did you mean 'run'?"),
        (["--versio"], "No such option: --versio"),
        (["run", "--tls", "certificates"], "certificates (--tls) are of use only with a cluster"),
        (["paper", "models", "--tls", "certificates"], "are of use only with a cluster"),
        (["compare", "--collect", "--out", "no"], "no run of this comparison is finished in no"),
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
def test_wrong_input(arguments: list[str], said: str) -> None:
    assert said in refused(*arguments, PFEDES_DATA="")


def test_wrong_input_of_a_real_process() -> None:
    """What the shell sees: the parser's refusal, and one of ours."""
    assert "--roundz" in complaint(process("run", "--roundz", "3"))
    assert "did you mean 'pfedes'?" in complaint(process("run", "--method", "pfedess"))
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
    done = process("run", *TINY, "--set=runtime.report=true", "--out", "first")
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


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["-h"], "Usage: pfedes [OPTIONS] COMMAND"),
        (["data"], "Usage: pfedes data [OPTIONS] COMMAND"),
        (["run", "-h"], "Usage: pfedes run"),
    ],
)
def test_help_has_lines_and_is_no_error(words: list[str], usage: str) -> None:
    done = command(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(usage)
    assert len(done.stdout.splitlines()) > 10
    assert not [line for line in done.stdout.splitlines()[1:] if line.endswith("...")]  # cut off


def test_shells_can_complete_commands() -> None:
    asked = {"_PFEDES_COMPLETE": "complete_bash", "COMP_WORDS": "pfedes re", "COMP_CWORD": "1"}
    done = process(**asked)
    assert {"resume", "report", "rehearse"} <= set(done.stdout.split())


@pytest.mark.usefixtures("terminal")
def test_a_terminal_that_is_closed_leaves_a_trace(tmp_path: Path) -> None:
    endless = [word for word in TINY if "train.rounds" not in word]
    started = subprocess.Popen(
        [*MAIN, "run", *endless, "--rounds", "500", "--out", "run"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    manifest = tmp_path / "run/state/manifests/00000.json"
    deadline = time.monotonic() + 240
    while not (manifest.exists() and (tmp_path / "run/run.log").exists()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started.send_signal(signal.SIGHUP)
    said = started.communicate(timeout=240)[1]
    assert started.returncode == 130
    assert "'pfedes resume run' continues" in said
    assert said.count("stopped") == 1
    logged = (tmp_path / "run/run.log").read_text()
    assert "stopped by SIGHUP; 'pfedes resume run' continues" in logged


def test_debug_shows_the_traceback_anywhere_in_the_command() -> None:
    plain = command("run", "--data", "nowhere")
    assert "Traceback" not in plain.stderr
    for words in (["--debug", "run"], ["run", "--debug"]):
        done = command(*words, "--data", "nowhere")
        assert done.returncode == 2
        assert "Traceback" in done.stderr
        assert done.stderr.splitlines()[-1] == plain.stderr.strip()


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
                "1",
                "--out",
                out,
                "--json",
            ),
            *("--set", "data.limit=2000", "--set", "train.epochs=1"),
            *("--set", "method.extractor_epochs=1", "--set", f"runtime.fleet={fleet}"),
        )
        assert done.returncode == 0, done.stderr
        clients = [json.loads(row) for row in Path(out, "clients.jsonl").read_text().splitlines()]
        assert len(clients) == 10
        assert all((row["floats_down"], row["floats_up"]) == (443, 443) for row in clients)
        summary = json.loads(done.stdout)
        assert summary["clients"] == 100
        manifest = json.loads(Path(out, "state/manifests/00001.json").read_text())["manifest"]
        results.append(
            (summary["accuracies"], [entry["digest"] for entry in manifest["clients"].values()])
        )
    assert results[0] == results[1]


def test_names_are_no_codes_for_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    output().print("mine:bug: failed")
    assert capsys.readouterr().out == "mine:bug: failed\n"
