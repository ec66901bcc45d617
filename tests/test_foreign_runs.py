"""A run directory from a stranger: it is read, and nothing that it names is run.

Every attack here succeeded before: the code ran when the directory was opened.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from golden import tiny
from pfedes import Federation, Participant, StoreError, cli, configure, open_run
from pfedes.deploy.participant.state import ParticipantState
from pfedes.files import read
from pfedes.reproduction.record import Record
from pfedes.store.run_store import RunStore
from pfedes.store.trust import check_code, remember
from pfedes.sweep.cells import Cell
from pfedes.sweep.execute import run_cells
from pictures import picture
from running import small, with_rows

FIXTURES = Path(__file__).parent / "fixtures"
EVIL = """
from pathlib import Path
Path({mark!r}).touch()
from tiny import *
from pfedes import MethodConfig, Standalone


class TheirConfig(MethodConfig):
    name: str = "evil_module:Theirs"
    strength: float = 1.0

class Theirs(Standalone):
    Config = TheirConfig
"""


@pytest.fixture(autouse=True)
def _nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFEDES_STATE", str(tmp_path / "records"))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Appears when foreign code runs."""
    return tmp_path / "it-ran"


@pytest.fixture
def evil(tmp_path: Path, mark: Path) -> Iterator[str]:
    """A module that can be imported, and tells."""
    place = tmp_path / "modules"
    place.mkdir()
    (place / "evil_module.py").write_text(EVIL.format(mark=str(mark)))
    sys.path.insert(0, str(place))
    yield "evil_module"
    sys.path.remove(str(place))
    sys.modules.pop("evil_module", None)


Execute = Callable[..., tuple[int, str]]


@pytest.fixture
def execute(capsys: pytest.CaptureFixture[str]) -> Execute:
    def run(*words: str) -> tuple[int, str]:
        code = cli.execute(list(words))
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def foreign(tmp_path: Path, change: Callable[[str], str], name: str = "interrupted") -> Path:
    """A run directory as it may come by mail: its digests are what its sender wants."""
    place = Path(shutil.copytree(FIXTURES / name, tmp_path / "foreign"))
    config = place / "config.toml"
    config.write_text(change(config.read_text()))
    about = place / "environment.json"
    if about.is_file():
        from pfedes.config import stored_config

        tree = json.loads(about.read_text())
        tree["federation"] = stored_config(config).federation_digest()
        about.write_text(json.dumps(tree))
    return place


def commands(place: Path) -> list[list[str]]:
    return [
        ["predict", str(place), "--client", "ada", picture()],
        ["export", str(place), "--client", "ada"],
        ["resume", str(place)],
        ["resume", str(place), "--rounds", "9"],
    ]


def test_a_file_beside_the_run_never_runs(tmp_path: Path, mark: Path, execute: Execute) -> None:
    place = foreign(tmp_path, lambda text: text.replace("tiny:dense", "own.py:dense"))
    (place / "own.py").write_text(EVIL.format(mark=str(mark)))
    for words in commands(place):
        for trust in ([], ["--trust-code"]):  # never from inside a run directory
            code, said = execute(*words, *trust)
            assert (code, mark.exists()) == (2, False), said
            assert "nothing is imported from a run directory" in said
            assert len(said.strip().splitlines()) == 1
    for trust in ([], ["--trust-code"]):
        assert execute("report", str(place), *trust)[0] == 0
    assert (place / "report.html").is_file()
    assert not mark.exists()


@pytest.mark.parametrize("key", ["model", "data"])
def test_a_file_elsewhere_runs_only_where_it_is_trusted(
    key: str, tmp_path: Path, mark: Path, execute: Execute
) -> None:
    theirs = tmp_path / "theirs.py"
    theirs.write_text(EVIL.format(mark=str(mark)))
    names = {"model": "dense", "data": "ada_images"}
    name = names[key]
    place = foreign(tmp_path, lambda text: text.replace(f'"tiny:{name}"', f'"{theirs}:{name}"'))
    for words in commands(place):
        code, said = execute(*words)
        assert (code, mark.exists()) == (2, False), said
        assert f"participants.ada.{key} = '{theirs}:{name}'" in said
        assert "repeat the command with --trust-code" in said
        assert len(said.strip().splitlines()) == 1
    assert execute("report", str(place))[0] == 0
    with pytest.raises(StoreError, match="names code that no run of yours has used"):
        open_run(place).model("ada")
    assert not mark.exists()
    # The control: those who want it can have it, and a run that they resumed is their own.
    open_run(place, trust_code=True).model("ada")
    assert mark.exists()
    assert execute("predict", str(place), "--client", "ada", picture())[0] == 2
    assert execute("resume", str(place), "--trust-code")[0] == 0
    assert execute("predict", str(place), "--client", "ada", picture())[0] == 0


def test_an_installed_module_runs_only_where_it_is_trusted(
    evil: str, tmp_path: Path, mark: Path, execute: Execute
) -> None:
    place = foreign(tmp_path, lambda text: text.replace("tiny:dense", f"{evil}:dense"))
    for words in commands(place):
        code, said = execute(*words)
        assert (code, mark.exists()) == (2, False), said
    assert execute("report", str(place))[0] == 0
    assert not mark.exists()


def test_an_extractor_that_nobody_named_here(
    evil: str, tmp_path: Path, mark: Path, execute: Execute
) -> None:
    place = foreign(
        tmp_path,
        lambda text: text.replace('extractor = "auto"', f'extractor = "{evil}:dense"'),
        "untrained",
    )
    for words in (["predict", str(place), "--client", "client-0000", picture(16)], ["resume",
                  str(place)]):  # fmt: skip
        code, said = execute(*words)
        assert (code, mark.exists()) == (2, False), said
        assert "method.extractor" in said
    Path("late.toml").write_text('name = "late"\nmodel = "tiny:dense"\ndata = "tiny:ada_images"')
    assert execute("adopt", str(place), "late.toml")[0] == 2
    assert execute("report", str(place))[0] == 0
    assert not mark.exists()


def test_a_method_that_is_not_imported_is_still_reported(
    evil: str, tmp_path: Path, mark: Path, execute: Execute
) -> None:
    config = small(f"{evil}:Theirs", train__rounds=1, method__strength=2.0)
    Federation(config, out="run").run()
    assert mark.exists()  # it is this user's own
    mark.unlink()
    sys.modules.pop(evil)
    run = tmp_path / "run"
    # On another machine: nothing is recorded there, and nothing is installed.
    shutil.copytree(run, tmp_path / "foreign")
    manifest = next((tmp_path / "foreign" / "state" / "manifests").glob("00001.json"))
    text = manifest.read_text()
    assert open_run(run).simulation.method.config.model_dump()["strength"] == 2.0
    assert mark.exists()
    mark.unlink()
    sys.modules.pop(evil)
    sys.path.remove(str(tmp_path / "modules"))
    code, said = execute("report", "run")
    assert code == 0, said
    assert "strength = 2.0" in (run / "report.html").read_text()
    assert open_run("run").summary["method"] == f"{evil}:Theirs"
    code, said = execute("predict", "run", "--client", "client-0000", picture(32))
    assert (code, "cannot be imported" in said) == (2, True)
    sys.path.insert(0, str(tmp_path / "modules"))
    assert text == manifest.read_text()
    assert not mark.exists()


def test_methods_to_be_compared_are_not_imported_either(
    evil: str, tmp_path: Path, mark: Path, execute: Execute
) -> None:
    place = foreign(tmp_path, lambda text: f'{text}\n[compare."{evil}:Theirs"]\n')
    open_run(place)
    execute("report", str(place))
    execute("predict", str(place), "--client", "ada", picture())
    assert not mark.exists()


def test_records_of_strangers_are_only_read(evil: str, tmp_path: Path, mark: Path) -> None:
    place = tmp_path / "cell"
    shutil.copytree(FIXTURES / "compare" / "pfedes" / "seed-0", place)
    config = place / "config.toml"
    text = config.read_text()
    start, end = text.index("[method]"), text.index("[train]")
    config.write_text(f'{text[:start]}[method]\nname = "{evil}:Theirs"\n\n{text[end:]}')
    assert Record.of(place, configure()) is None
    assert not mark.exists()


def test_a_comparison_in_a_strangers_directory(evil: str, tmp_path: Path, mark: Path) -> None:
    place = foreign(tmp_path, lambda text: text.replace("tiny:dense", f"{evil}:dense"))
    wanted = tiny("images", "dense", train__rounds=3)
    with pytest.raises(StoreError, match="a run with other settings"):
        run_cells([Cell("cell", wanted, place)], jobs=1)
    assert not mark.exists()


def test_a_strangers_cluster_is_not_connected_to(tmp_path: Path, execute: Execute) -> None:
    def change(text: str) -> str:
        text = text.replace('fleet = "serial"', 'fleet = "cluster"')
        return text.replace('cluster = ""', 'cluster = "tls://192.0.2.1:8786"')

    place = foreign(tmp_path, change, "untrained")
    code, said = execute("resume", str(place))
    assert code == 2
    assert "runtime.cluster = 'tls://192.0.2.1:8786'" in said


@pytest.mark.parametrize("name", ["own.py", "module"])
def test_a_participants_state_from_a_stranger(
    name: str, evil: str, tmp_path: Path, mark: Path, execute: Execute
) -> None:
    theirs = "own.py:dense" if name == "own.py" else f"{evil}:dense"
    place = foreign(tmp_path, lambda text: text.replace("tiny:dense", theirs), "state")
    (place / "own.py").write_text(EVIL.format(mark=str(mark)))
    for words in commands(place)[:2]:
        code, said = execute(*words)
        assert (code, mark.exists()) == (2, False), said
    with pytest.raises(StoreError):
        ParticipantState(place).personal()
    assert not mark.exists()


def test_code_of_own_runs_needs_no_option(tmp_path: Path, execute: Execute) -> None:
    Federation(tiny("images", "dense", train__rounds=1), out="run").run()
    assert execute("predict", "run", "--client", "ada", picture())[0] == 0
    assert execute("resume", "run", "--rounds", "2")[0] == 0
    # Wherever it is moved to on this machine.
    Path("run").rename("moved")
    assert execute("export", "moved", "--client", "ada", "--out", "out")[0] == 0
    # Another name in the place of one that was recorded does.
    run = open_run("moved").manifest.run
    with pytest.raises(StoreError, match="model = 'tiny:other'"):
        check_code(run, Path("moved"), {"participants.ada.model": "tiny:other"}, trust_code=False)


def test_a_record_that_others_can_write_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute: Execute
) -> None:
    monkeypatch.setenv("PFEDES_STATE", str(tmp_path / "home"))
    Federation(tiny("images", "dense", train__rounds=1), out="run").run()
    (record,) = (tmp_path / "home" / "code").iterdir()
    assert record.stat().st_mode & 0o077 == 0
    assert record.parent.stat().st_mode & 0o077 == 0
    record.chmod(0o666)
    assert execute("predict", "run", "--client", "ada", picture())[0] == 2
    record.chmod(0o600)
    assert execute("predict", "run", "--client", "ada", picture())[0] == 0


def test_a_user_without_a_home_is_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PFEDES_STATE", str(tmp_path / "file"))
    person: Any = Participant(name="ada", model="tiny:dense", data="tiny:ada_images")
    remember("run", configure(participants=[person]))
    assert "later commands on this run will ask for --trust-code" in caplog.text
    caplog.clear()
    remember("run", configure())  # names nothing
    assert not caplog.text


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    """The one would be waited for, and the other fill the memory, forever."""
    pipe, endless = tmp_path / "pipe", tmp_path / "endless"
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    for path in (pipe, endless):
        with pytest.raises(StoreError, match="cannot be read: it is not a regular file"):
            read(path)


def test_a_number_that_no_run_has(tmp_path: Path, execute: Execute) -> None:
    """JSON holds numbers of any length, which are no number any more once they are printed."""
    Federation(small(train__rounds=1, runtime__report=False), out=tmp_path / "run").run()
    store = RunStore(tmp_path / "run")
    (row,) = store.rows("rounds.jsonl", store.manifest())
    with_rows(tmp_path / "run", "rounds.jsonl", [{**row, "floats_up": 10**400}])
    code, said = execute("report", str(tmp_path / "run"))
    assert (code, len(said.strip().splitlines())) == (2, 1)
    assert "rounds.jsonl is damaged: a number of 401 digits" in said
    with_rows(tmp_path / "run", "rounds.jsonl", [{**row, "seconds": float("inf")}])
    assert execute("report", str(tmp_path / "run"))[0] == 0


def test_no_line_of_a_strangers_commands_the_terminal(tmp_path: Path, execute: Execute) -> None:
    place = foreign(tmp_path, lambda text: text.replace("conv = 1", ""))
    hidden = place.rename(tmp_path / "run\x1b[2J")
    (hidden / "config.toml").unlink()
    code, said = execute("report", str(hidden))
    assert code == 2
    assert "run?[2J" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("line", [{"floats": "x"}, {"floats": 10**400}, {"values": 3}])
def test_a_participants_list_from_a_stranger(
    line: dict[str, Any], tmp_path: Path, execute: Execute
) -> None:
    place = Path(shutil.copytree(FIXTURES / "state", tmp_path / "state"))
    whole = {"kind": "answer", "floats": 3, "values": {}}
    with (place / "sent.jsonl").open("a") as file:
        file.write(json.dumps({**whole, **line}) + "\n")
    for words in (["status", str(place)], ["predict", str(place), picture(), "--trust-code"]):
        code, said = execute(*words)
        assert (code, len(said.strip().splitlines())) == (2, 1)
        assert "sent.jsonl is damaged" in said


def test_what_a_run_was_made_for_is_compared_before_anything_is_imported(
    evil: str, tmp_path: Path, mark: Path, execute: Execute
) -> None:
    place = Path(shutil.copytree(FIXTURES / "interrupted", tmp_path / "foreign"))
    config = place / "config.toml"
    config.write_text(config.read_text().replace("tiny:dense", f"{evil}:dense"))
    for words in commands(place):
        code, said = execute(*words, "--trust-code")
        assert (code, mark.exists()) == (2, False), said
        assert "has a changed key that defines the run" in said
