"""A configuration as the text of a TOML file."""

from collections.abc import Iterator
from typing import Any

import tomli_w

from pfedes.section import Section


def lines_of(section: Section, *, comments: bool, name: str = "") -> Iterator[str]:
    """A section's keys, and then those of the sections in it, each under its heading."""
    dumped = section.model_dump(mode="json")
    if name:
        yield f"\n[{name}]"
    nested = {}
    for key, value in (section.model_extra or {}).items():
        yield f"{key} = {_toml(value)}"
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        if isinstance(value, Section):
            nested[key] = value
            continue
        if isinstance(value, dict) or (key == "participants" and not name):
            continue  # [compare.NAME] concerns comparisons; participants follow the sections
        shown = field.alias or key
        line = f"{shown} = {_toml(dumped[shown])}"
        yield f"{line:<34}  # {field.description}" if comments and field.description else line
    for key, value in nested.items():
        yield from lines_of(value, comments=comments, name=key)


def _toml(value: Any) -> str:
    """A value on one line, where the library would spread a list over many."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").strip()
