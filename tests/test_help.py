"""The list of commands: complete, in sections, and true of every command."""

from pathlib import Path

import pytest

import pfedes.cli
from pfedes.cli._lazy import COMMANDS, load


def test_every_command_has_a_file_and_every_file_a_command() -> None:
    files = {path.stem for path in Path(pfedes.cli.__file__).parent.glob("[a-z]*.py")}
    assert files == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_load_and_are_documented(name: str) -> None:
    command = load(name)
    assert name in (command.name, "data")
    assert command.help
    assert COMMANDS[name].endswith(".")
    assert len(COMMANDS[name]) <= 68, "a line of 80 columns"
