"""What MkDocs cannot do by itself: pages from code, examples and results, links out of `docs/`."""

import io
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tomli_w
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pydantic.fields import FieldInfo

from pfedes.section import Section

FilledIn = Callable[[], Iterator[str]]

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
RESULTS = ROOT / "results"
LANGUAGES = {".md": "markdown", ".py": "python", ".toml": "toml"}
"""Of the examples' files, by suffix; other files are results and data."""
ARCHIVE = "examples.zip"
VERSIONS = "constraints.txt"
"""The versions that pfedes is tested with: who has a wheel alone needs them, too."""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds what readers download: the examples as one file, and the tested versions."""
    files.append(File.generated(config, ARCHIVE, content=archive()))
    files.append(File.generated(config, VERSIONS, content=(ROOT / VERSIONS).read_bytes()))


def on_page_markdown(markdown: str, **_: object) -> str:
    """Fills in what comes from elsewhere. Links that leave `docs/` lead to the page of the examples
    or become the name of a file."""
    for name, lines in FILLED_IN.items():
        mark = f"<!-- {name} -->"
        if mark in markdown:
            markdown = markdown.replace(mark, "\n".join(lines()))
    return re.sub(r"\[([^\]]+)\]\(\.\./([^)]+)\)", _named, markdown)


def _named(link: re.Match[str]) -> str:
    """The words of a link and the file in the repository, which is no part of the site."""
    text, target = link.groups()
    if target == VERSIONS:
        return f"[{text}]({target})"
    if target.startswith(f"{EXAMPLES.name}/"):
        return f"[{text}](examples.md#{_anchor(target)})"
    return f"`{target}`" if text.strip("`") == target else f"{text} (`{target}` in the repository)"


def commands() -> Iterator[str]:
    """Every command with its help, as a terminal of 80 columns shows it."""
    from pfedes.cli._lazy import SECTIONS, load

    for title, names in SECTIONS.items():
        yield f"## {title}\n"
        for name in names:
            yield from _command(f"pfedes {name}", load(name))


def _command(name: str, command: Any) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True, terminal_width=80)
    yield f"### {name}\n\n```text\n{command.get_help(context)}\n```\n"
    for word, inner in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {word}", inner)


def configuration() -> Iterator[str]:
    """Every key with its default and meaning, by section and by method."""
    from pfedes.config import Config
    from pfedes.config.participant import Participant
    from pfedes.methods import METHODS

    yield "## Top level\n"
    yield from _keys(Config)
    for name, section in _sections(Config).items():
        yield f"## `[{name}]`\n"
        if name != "method":
            yield from _keys(section)
            continue
        for method, kind in METHODS.items():
            yield f"### `{method}`\n"
            yield from _keys(kind.Config)
    yield "## A participant's file\n"
    yield from _keys(Participant)
    for name, section in _sections(Participant).items():
        yield f"### `[{name}]`\n"
        yield from _keys(section)


def _sections(model: type[Section]) -> dict[str, type[Section]]:
    """The tables within a file, by name; these are not keys."""
    return {
        name: type(_default(field))
        for name, field in model.model_fields.items()
        if _is_section(field)
    }


def _is_section(field: FieldInfo) -> bool:
    return isinstance(_default(field), Section)


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


def _keys(section: type[Section]) -> Iterator[str]:
    yield "| key | default | meaning |\n|---|---|---|"
    for name, field in section.model_fields.items():
        if not _is_section(field):
            default = "required" if field.is_required() else f"`{_toml(_default(field))}`"
            meaning = (field.description or "").replace("|", "\\|").replace("<", "&lt;")
            yield f"| `{field.alias or name}` | {default} | {meaning} |"
    yield ""


def _toml(value: object) -> str:
    """A value as it is written in a file, on one line."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_toml, value))}]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").strip() if value != {} else "{}"


def examples() -> Iterator[str]:
    """The archive, and what is in it."""
    yield f"[{ARCHIVE}]({ARCHIVE})\n"
    directory = EXAMPLES
    for file in _example_files():
        if file.parent not in (directory, EXAMPLES):
            directory = file.parent
            yield _heading("##", directory)
        yield _heading("##" if file.parent == EXAMPLES else "###", file)
        yield f"````{LANGUAGES[file.suffix]}\n{file.read_text()}````\n"


def _heading(level: str, path: Path) -> str:
    name = path.relative_to(EXAMPLES.parent).as_posix()
    return f"{level} {name} {{ #{_anchor(name)} }}\n"


def _anchor(name: str) -> str:
    return re.sub(r"\W+", "-", name)


def archive() -> bytes:
    """The examples as a zip archive, the same bytes for the same files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as made:
        for file in _example_files():
            name = file.relative_to(EXAMPLES.parent).as_posix()
            made.writestr(zipfile.ZipInfo(name), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return data.getvalue()


def _example_files() -> list[Path]:
    """Files of the examples, those of their directories last."""
    found = [file for file in EXAMPLES.rglob("*") if file.suffix in LANGUAGES]
    return sorted(found, key=lambda file: (file.parent, file.name))


def leaderboard() -> Iterator[str]:
    """Its tables at the scales of which there are results, made from the archived runs."""
    from pfedes.reproduction.experiment import Results
    from pfedes.reproduction.experiments.leaderboard import LEADERBOARD
    from pfedes.reproduction.scale import CONVERGED, LAPTOP
    from pfedes.reproduction.scenario import DATA

    notes: dict[str, None] = {}
    for scale in (LAPTOP, CONVERGED):
        shown = LEADERBOARD.show(Results(scale, RESULTS / scale.name))
        notes |= dict.fromkeys(shown.notes)
        for data, table in shown.tables.items():
            if table.rows:
                yield f"## {DATA[data]}, scale {scale.name}\n\nThe scale: {scale.about}.\n"
                yield table.to_markdown()
    yield from (f"- {note}" for note in notes)


FILLED_IN: dict[str, FilledIn] = {
    "commands": commands,
    "configuration": configuration,
    "examples": examples,
    "leaderboard": leaderboard,
}
"""What stands for `<!-- name -->` on a page, by name."""
