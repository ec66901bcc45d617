"""`pfedes new`: a small project, ready to run."""

from collections.abc import Iterator
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from pfedes.core.names import check_name
from pfedes.errors import ConfigError
from pfedes.files import appearing, at_home

SUFFIX = ".template"
"""The suffix of all template files: tools must not take them for Python or TOML files."""
PLACEHOLDER = "@NAME@"


class ProjectKind(StrEnum):
    """The kinds of projects."""

    STUDY = "study"
    PARTICIPANT = "participant"


NEXT = {
    ProjectKind.STUDY: ("pfedes check north.toml --federation study.toml", "pfedes run study.toml"),
    ProjectKind.PARTICIPANT: (
        "pfedes check participant.toml --federation federation.toml",
        "pfedes run federation.toml --participant participant.toml",
    ),
}
"""The first commands in a new project, in order."""


def new(
    place: Annotated[
        Path,
        typer.Argument(metavar="NAME", help="Directory to create.", show_default=False),
    ],
    *,
    kind: Annotated[
        ProjectKind,
        typer.Option(help="A simulation of several participants, or one that will join."),
    ] = ProjectKind.STUDY,
) -> None:
    """Create a small project, ready to run: configuration, model, data, test, README."""
    place = at_home(place)
    write_project(place, kind)
    print(f"{place} is a {kind} project. Next:\n")
    for line in (f"cd {place}", *NEXT[kind]):
        print(f"    {line}")


def write_project(place: Path, kind: ProjectKind) -> None:
    """Writes all files of a new project, or none.

    Raises ConfigError where something is there already, StoreError where the directory's name could
    not name a participant.
    """
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise ConfigError(f"{place} is there already: choose another name")
    name = check_name(place.absolute().name)
    with appearing(place) as work:
        for file, text in _templates(kind):
            (work / file).write_text(text.replace(PLACEHOLDER, name), encoding="utf-8")


def _templates(kind: ProjectKind) -> Iterator[tuple[str, str]]:
    """The files of a kind of project: names and texts."""
    for file in files("pfedes.cli").joinpath("templates", kind).iterdir():
        if file.name.endswith(SUFFIX):
            yield file.name.removesuffix(SUFFIX), file.read_text(encoding="utf-8")
