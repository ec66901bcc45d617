"""What is wrong with a configuration, in words."""

from pydantic import ValidationError

from pfedes.errors import unknown
from pfedes.section import Section


def explain(error: ValidationError, model: type[Section], prefix: str = "") -> list[str]:
    """What is wrong, where, and what would have been right; a line for each key."""
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
        message = problem["msg"].removeprefix("Value error, ")
        what = f"{key} = {found!r}" if shown else key
        lines.setdefault(what, []).append(f"{message[0].lower()}{message[1:]}")
    return [f"{what}: {', or '.join(why)}" if why else what for what, why in lines.items()]


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
