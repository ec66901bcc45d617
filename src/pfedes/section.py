"""The base of every configuration section, and what is wrong with one in words."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from pfedes.errors import DamageError, unknown
from pfedes.files import parse_json, read

T = TypeVar("T")


class Section(BaseModel):
    """Frozen settings of one concern; a misspelt key or a NaN is an error, never ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        populate_by_name=True,  # `lambda` is no name in Python: fields may have an alias
        serialize_by_alias=True,
    )


def read_as(form: TypeAdapter[T], path: Path, otherwise: T) -> T:
    """Reads a JSON file in this form; `otherwise` without the file. Raises a DamageError."""
    if not path.exists():
        return otherwise
    try:
        return form.validate_python(parse_json(path, read(path)))
    except ValidationError as error:
        raise DamageError(f"{path} is damaged: {str(error).splitlines()[0]}") from None


def unknown_fields(error: ValidationError) -> str:
    """The fields that were given and are not known, if nothing else is wrong; else ''."""
    problems = error.errors()
    if any(problem["type"] != "extra_forbidden" for problem in problems):
        return ""
    return ", ".join(repr(".".join(map(str, problem["loc"]))) for problem in problems[:5])


def explain(error: ValidationError, model: type[Section], prefix: str = "") -> list[str]:
    """Explains what is wrong, where, and what would be right; one line for each key."""
    lines: dict[str, list[str]] = {}
    for problem in error.errors():
        section, path = _locate(model, problem["loc"])
        key = ".".join([prefix, *path] if prefix else path)
        if problem["type"] == "extra_forbidden":
            home = key.rpartition(".")[0]
            names = [field.alias or name for name, field in section.model_fields.items()]
            known = [f"{home}.{name}" if home else name for name in names]
            lines[unknown("key", key, known)] = []
            continue
        found = problem["input"]
        shown = isinstance(found, str | int | float | bool | list | tuple)
        message = _as_list(problem) or problem["msg"].removeprefix("Value error, ")
        what = f"{key} = {found!r}" if shown else key
        lines.setdefault(what, []).append(f"{message[0].lower()}{message[1:]}")
    return [f"{what}: {', or '.join(why)}" if why else what for what, why in lines.items()]


def _as_list(problem: ErrorDetails) -> str:
    """How to write a list, where a single value was given; '' for other problems."""
    found = problem["input"]
    if problem["type"] not in ("tuple_type", "list_type") or not isinstance(found, str):
        return ""
    words = ", ".join(f'"{word.strip()}"' for word in found.split(","))
    return f"expected a list such as [{words}]"


def _locate(
    model: type[Section], location: tuple[int | str, ...]
) -> tuple[type[Section], list[str]]:
    """The section and the dotted key of an error, without the names of a union's alternatives."""
    path = []
    for index, part in enumerate(location):
        field = model.model_fields.get(str(part))
        inside = field.annotation if field is not None else None
        last = index == len(location) - 1
        if not last and isinstance(inside, type) and issubclass(inside, Section):
            model = inside
        elif index > 1 and isinstance(part, str):
            continue
        path.append(str(part))
    return model, path
