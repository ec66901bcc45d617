"""`pfedes new`: what it makes can be checked, run and tested as it stands."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest

from commands import command, refused
from pfedes.cli.new import NEXT, PLACEHOLDER, ProjectKind

CHEAP = ("--rounds", "1", "--set", "runtime.fleet=serial", "--set", "runtime.report=false")


@pytest.mark.parametrize("kind", ProjectKind)
def test_a_new_project_is_checked_and_run(
    kind: ProjectKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = command("new", "mine", "--kind", kind)
    assert done.returncode == 0, done.stderr
    told = [line.strip() for line in done.stdout.splitlines() if line.startswith("    ")]
    assert told == ["cd mine", *NEXT[kind]]
    monkeypatch.chdir("mine")
    check, run = (shlex.split(line)[1:] for line in NEXT[kind])
    checked = command(*check)
    assert checked.returncode == 0, checked.stderr
    assert "can take part" in checked.stdout
    ran = command(*run, *CHEAP, "--json")
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert summary["mean_accuracy"] > summary["initial_accuracy"]


@pytest.mark.parametrize("kind", ProjectKind)
def test_its_own_test_passes_and_can_fail(kind: ProjectKind, tmp_path: Path) -> None:
    assert command("new", "mine", "--kind", kind).returncode == 0
    (file,) = Path("mine").glob("test_*.py")
    names: dict[str, object] = {"__file__": str(file.absolute())}
    exec(compile(file.read_text(), str(file), "exec"), names)
    (test,) = [value for name, value in names.items() if name.startswith("test_")]
    assert callable(test)
    test(tmp_path / "first")
    for toml in Path("mine").glob("*.toml"):
        toml.write_text(toml.read_text().replace("epochs = ", "epochs = -"))
    with pytest.raises(Exception, match="epochs"):
        test(tmp_path / "second")


@pytest.mark.parametrize("kind", ProjectKind)
def test_every_file_is_filled_in_and_named(kind: ProjectKind) -> None:
    assert command("new", "deep/mine", "--kind", kind).returncode == 0
    place = Path("deep/mine")
    readme = (place / "README.md").read_text()
    assert readme.startswith("# mine\n")
    for line in NEXT[kind]:
        assert line in readme
    for file in place.iterdir():
        text = file.read_text()
        assert PLACEHOLDER not in text
        assert file.name == "README.md" or f"`{file.name}`" in readme
        if file.suffix == ".toml":
            assert tomllib.loads(text)
            assert "#" in text
        if file.suffix == ".py":
            compile(text, file.name, "exec")


def test_nothing_is_overwritten() -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    assert "mine is there already: choose another name" in refused("new", "mine")
    Path("file").write_text("")
    assert "file is there already" in refused("new", "file")
    assert "file/mine" in refused("new", "file/mine")


def test_an_empty_directory_is_filled() -> None:
    Path("mine").mkdir()
    assert command("new", "mine").returncode == 0
    assert Path("mine/study.toml").is_file()


def test_a_name_that_no_participant_may_have_is_refused() -> None:
    assert "'my study' cannot be a name" in refused("new", "my study")
    assert "kind" in refused("new", "mine", "--kind", "nonsense")
