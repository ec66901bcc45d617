"""What users build on, as data: `python tests/surface.py > tests/fixtures/surface-VERSION.json`.

Made at a release; later versions of the same series must still have all of it.
"""

import enum
import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

import pfedes
from pfedes import methods
from pfedes.cli._lazy import COMMANDS, load
from pfedes.config import Config
from pfedes.config.participant import Participant
from pfedes.errors import PfedesError
from pfedes.methods import METHODS
from pfedes.section import Section

Surface = dict[str, list[str]]


def surface() -> Surface:
    """Names by where they are: Python, commands with options, keys, methods, exit codes."""
    found: Surface = {"methods": sorted(METHODS)}
    for module in (pfedes, methods):
        for name in module.__all__:
            found[f"{module.__name__}.{name}"] = sorted(_parts(getattr(module, name)))
    for name in COMMANDS:
        found.update(_command(f"pfedes {name}", load(name)))
    found["configuration"] = sorted(_keys(Config))
    for name, kind in METHODS.items():
        found[f"[method] of {name}"] = sorted(_keys(kind.Config))
    found["participant file"] = sorted(_keys(Participant))
    errors = [value for value in vars(pfedes.errors).values() if inspect.isclass(value)]
    found["exit codes"] = sorted(
        f"{kind.__name__} {kind.exit_code}" for kind in errors if issubclass(kind, PfedesError)
    )
    return found


def _parts(value: Any) -> Iterator[str]:
    """The arguments of a function; the public members of a class with theirs."""
    if inspect.isfunction(value):
        yield from inspect.signature(value).parameters
    elif inspect.isclass(value) and issubclass(value, BaseModel):
        yield from value.model_fields
    elif inspect.isclass(value) and not issubclass(value, Exception | enum.Enum):
        for name, member in vars(value).items():
            if name.startswith("_") and name != "__init__":
                continue
            yield name
            if inspect.isfunction(member):
                yield from (f"{name}.{key}" for key in inspect.signature(member).parameters)


def _command(name: str, command: Any) -> Iterator[tuple[str, list[str]]]:
    yield name, sorted(option for part in command.params for option in part.opts)
    for word, inner in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {word}", inner)


def _keys(section: type[Section]) -> Iterator[str]:
    for name, field in section.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, Section) and name != "method":
            yield from (f"{name}.{key}" for key in _keys(type(default)))
        else:
            yield str(field.alias or name)


if __name__ == "__main__":
    json.dump(surface(), sys.stdout, indent=1)
    print()
