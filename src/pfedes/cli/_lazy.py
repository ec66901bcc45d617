"""The group of all commands: each is imported when it is called, so that help answers at once."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from pfedes.errors import ConfigError, unknown

ACROSS_MACHINES = "Federations across machines"
SECTIONS = {
    "Experiments": {
        "new": "Create a small project, ready to run.",
        "run": "Train a federation.",
        "resume": "Continue a run after its last complete round.",
        "compare": "Run several methods on equal terms and print one table.",
        "paper": "Repeat a table or figure of the paper.",
        "report": "Write the report of a run, or of several side by side.",
        "audit": "Attack what clients send, and report what it reveals.",
        "watch": "Follow runs and federations on a live page.",
        "data": "List and describe data sets and partitions.",
        "config": "Print every setting with its value and meaning.",
    },
    "Models": {
        "check": "Check a participant's model and data; show what would leave.",
        "predict": "Predict labels with a client's trained model.",
        "export": "Write a client's trained model as files that work without pfedes.",
        "adopt": "Train your own model with the extractor of a finished run.",
    },
    ACROSS_MACHINES: {
        "rehearse": "Try a whole federation on this machine.",
        "serve": "Coordinate a federation.",
        "status": "Show who is connected, the round, and all accuracies.",
        "admit": "Create a kit for a new participant.",
        "revoke": "Expel a participant.",
        "renew": "Renew certificates.",
        "request": "Create a private key and a request for a kit.",
        "join": "Take part in a federation with your own model and data.",
    },
}
COMMANDS = {name: text for section in SECTIONS.values() for name, text in section.items()}


class LazyGroup(TyperGroup):
    """Knows its commands by name, and what `--help` says of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            return load(cmd_name)
        if ctx.resilient_parsing or cmd_name.startswith("-"):
            return None
        raise ConfigError(unknown("command", cmd_name, COMMANDS))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


def load(name: str) -> Any:
    """A command by its name; raises ConfigError where an extra that it needs is not installed."""
    try:
        module = import_module(f"pfedes.cli.{name}")
    except ModuleNotFoundError:
        # What else is missing then, such as cryptography, comes with the same extra.
        if name not in SECTIONS[ACROSS_MACHINES] or find_spec("nvflare") is not None:
            raise
        raise ConfigError(
            f"pfedes {name} needs the extra 'flare': pip install 'pfedes[flare]'"
        ) from None
    if hasattr(module, "app"):  # a group of commands
        return get_command(module.app)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name)(getattr(module, name))
    return get_command(single)
