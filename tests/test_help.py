"""The list of commands: complete, in sections, and true of every command."""

import re
from pathlib import Path

import pytest

import pfedes.cli
from commands import command
from pfedes import ConfigError
from pfedes.cli._lazy import COMMANDS, load


def test_every_command_has_a_file_and_every_file_a_command() -> None:
    files = {path.stem for path in Path(pfedes.cli.__file__).parent.glob("[a-z]*.py")}
    assert files == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_load_and_are_documented(name: str) -> None:
    loaded = load(name)
    assert name in (loaded.name, "data")
    assert loaded.help
    assert COMMANDS[name].endswith(".")
    assert len(COMMANDS[name]) <= 68, "a line of 80 columns"


def test_without_arguments_it_says_what_to_do_next() -> None:
    done = command()
    assert done.returncode == 0
    assert done.stderr == ""
    told = re.findall(r"^    pfedes (\S+)", done.stdout, re.MULTILINE)
    assert told[-1] == "--help"
    assert len(told) > 3
    assert set(told[:-1]) <= set(COMMANDS)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.parametrize(("name", "flare"), [("serve", False), ("serve", True), ("run", False)])
def test_only_federations_are_said_to_need_the_extra(
    name: str, flare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(module: str) -> None:
        raise ModuleNotFoundError("No module named 'cryptography'")

    monkeypatch.setattr("pfedes.cli._lazy.import_module", broken)
    monkeypatch.setattr("pfedes.cli._lazy.find_spec", lambda name: object() if flare else None)
    if name == "serve" and not flare:
        with pytest.raises(ConfigError, match=r"pfedes serve needs the extra 'flare': pip install"):
            load(name)
    else:
        with pytest.raises(ModuleNotFoundError, match="cryptography"):
            load(name)
