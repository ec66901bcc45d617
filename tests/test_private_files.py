"""Who else can read what lies on the disk: nobody, where it is private."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from guests import ada, enrolled, task, terms
from pfedes import Federation, cli, open_run
from pfedes.deploy.participant.handler import ParticipantHandler
from pfedes.errors import DiskError
from pfedes.files import append_line, beside, make_private_directory
from pfedes.fleet.messages import from_task
from pfedes.store.lock import locked
from pfedes.store.log import logging_into
from running import small

NOBODY = 65534
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user to try what that one can read"
)


@pytest.fixture(autouse=True)
def _usual_umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in (root, *root.rglob("*")) if mode(p) & 0o077)


def test_every_level_of_a_private_directory_is_private(tmp_path: Path) -> None:
    make_private_directory(tmp_path / "a" / "b" / "c")
    assert [mode(tmp_path / place) for place in ("a", "a/b", "a/b/c")] == [0o700] * 3
    loose = tmp_path / "loose" / "leaf"
    loose.mkdir(parents=True)
    make_private_directory(loose)
    assert (mode(loose), mode(loose.parent)) == (0o700, 0o755)  # what was there is its owner's
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="cannot write"):
        make_private_directory(tmp_path / "file" / "below")


def test_states_of_a_run_are_private_and_reports_are_not(tmp_path: Path) -> None:
    Federation(small(train__rounds=1), out="run").run()
    run = tmp_path / "run"
    assert open_to_others(run / "state") == []
    assert mode(run) == 0o755
    assert mode(run / "run.log") == 0o600
    shown = ("summary.json", "config.toml", "rounds.jsonl", "clients.jsonl")
    assert {name: mode(run / name) for name in shown} == dict.fromkeys(shown, 0o644)


def test_a_run_that_was_open_to_others_is_closed_when_it_continues(tmp_path: Path) -> None:
    Federation(small(train__rounds=1, runtime__report=False), out="run").run()
    state = tmp_path / "run" / "state"
    state.chmod(0o755)
    (state / "lock").chmod(0o644)
    Federation.resume("run", rounds=2).run()
    assert open_to_others(state) == []


def test_the_umask_is_respected(tmp_path: Path) -> None:
    os.umask(0o077)
    with beside(tmp_path / "run") as work:
        assert mode(work) == 0o700


@pytest.mark.usefixtures("training_here")
def test_what_a_participant_keeps_is_private(tmp_path: Path) -> None:
    home = tmp_path / "people" / "ada"
    guest = ParticipantHandler(ada(home), terms().federation)
    guest.seat.make()
    try:
        with logging_into(home / "join.log"), locked(guest.seat.state):
            enrolled(guest)
            for message in (from_task("answer", task(1, 0)), from_task("notice", task(1, 1))):
                guest.handle(message)
    finally:
        guest.stop()
    assert (home / "sent.jsonl").is_file()
    assert (home / "join.log").is_file()
    assert list((home / "state" / "downloads").rglob("*.safetensors"))
    assert open_to_others(tmp_path / "people") == []


def test_a_log_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    log = tmp_path / "sent.jsonl"
    log.write_text("{}\n")
    append_line(log, b"{}")
    assert mode(log) == 0o600
    assert log.read_text() == "{}\n{}\n"


def become_nobody(program: str) -> list[str]:
    """A command line: a program of another user. Python may lie where that user cannot read."""
    become = f"import fcntl, os, time\nos.setgid({NOBODY}); os.setuid({NOBODY})"
    return [sys.executable, "-c", f"{become}\n{program}"]


def as_nobody(program: str) -> str:
    """What another user of this machine achieves with a program."""
    done = subprocess.run(become_nobody(program), capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


@needs_root
def test_another_user_reads_no_state_and_blocks_no_resume(tmp_path: Path) -> None:
    place = tmp_path
    while place != place.parent:  # pytest closes its directories, and the way there must be open
        place.chmod(mode(place) | 0o055)
        place = place.parent
    Federation(small(train__rounds=1, runtime__report=False), out="run").run()
    run = tmp_path / "run"
    state = next((run / "state" / "clients").rglob("*.safetensors"))
    # The control: what is to be read by others can be.
    assert as_nobody(f"print(len(open({str(run / 'summary.json')!r}).read()) > 0)") == "True"
    for path in (state, run / "state" / "lock", run / "run.log"):
        assert "PermissionError" in as_nobody(f"open({str(path)!r}).read()")
    assert "PermissionError" in as_nobody(f"os.listdir({str(run / 'state')!r})")
    holding = f"""
try:
    file = open({str(run / "state" / "lock")!r})
    fcntl.flock(file, fcntl.LOCK_SH)
    print("locked", flush=True)
except PermissionError:
    print("refused", flush=True)
time.sleep(60)
"""
    intruder = subprocess.Popen(become_nobody(holding), stdout=subprocess.PIPE, text=True)
    try:
        assert intruder.stdout is not None
        assert intruder.stdout.readline() == "refused\n"
        Federation.resume("run", rounds=2).run()
    finally:
        intruder.kill()
        intruder.communicate()
    assert open_run("run").manifest.round == 2


def test_a_summary_that_cannot_be_removed_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Federation(small(train__rounds=1, runtime__report=False), out="run").run()
    summary = tmp_path / "run" / "summary.json"
    summary.unlink()
    (summary / "below").mkdir(parents=True)
    assert cli.execute(["resume", "run", "--rounds", "2"]) == 2
    said = capsys.readouterr().err
    assert "cannot write run/summary.json" in said
    assert "Traceback" not in said
