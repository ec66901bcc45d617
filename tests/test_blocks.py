"""Code blocks of the documentation tell the truth: commands, options and keys are there, and what
is marked as runnable runs."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pfedes
from blocks import RUN, Block, blocks, inline_commands, pages
from commands import command
from pfedes import Federation
from pfedes.cli._lazy import COMMANDS, load
from pfedes.errors import ConfigError
from running import small
from surface import surface

ROOT = Path(__file__).parents[1]
PAGES = pages(ROOT)
RUNNABLE = [name for name, text in PAGES.items() if RUN in text]
CHEAP: Mapping[str, Any] = {
    "train.rounds": 1,
    "train.epochs": 1,
    "runtime.fleet": "serial",
    "runtime.report": False,
}
"""What a reader leaves to its default, so that a page is read in seconds here."""
FEW = {**CHEAP, "data.limit": 200, "partition.clients": 4, "models.pool": ["cnn5", "cnn4"]}
"""And where the page takes digits."""


def all_commands(text: str) -> Iterator[list[str]]:
    for block in blocks(text):
        yield from (words for words in block.commands() if words[0] == "pfedes")
    yield from inline_commands(text)


def problem(words: list[str]) -> str:
    """What is wrong with a command's name or options, or nothing."""
    if any(mark in " ".join(words) for mark in ("|", ">", "*")):
        return problem(words[:2])  # a pattern, not a command
    if len(words) < 2 or not words[1].isalpha():
        return ""  # the name, or a row of a table
    if words[1] not in COMMANDS:
        return f"no command {words[1]!r}"
    found: Any = load(words[1])
    rest = words[2:]
    if rest and rest[0] in getattr(found, "commands", {}):
        found, rest = found.commands[rest[0]], rest[1:]
    try:
        context = found.make_context(words[1], [], resilient_parsing=True)
        context.resilient_parsing = False
        found.make_parser(context).parse_args([word for word in rest if word != "..."])
    except Exception as error:
        # Usage errors of the parser, whose class has moved between releases.
        if not hasattr(error, "format_message"):
            raise
        told = str(error.format_message())
        return "" if told.endswith("requires an argument.") else told  # only names an option
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page: str) -> None:
    wrong = {" ".join(words): problem(words) for words in all_commands(PAGES[page])}
    assert {line: why for line, why in wrong.items() if why} == {}


@pytest.mark.parametrize(
    "line", ["pfedes walk", "pfedes run --nonsense", "pfedes data show --nonsense digits"]
)
def test_a_command_that_is_not_there_is_found(line: str) -> None:
    (words,) = all_commands(f"x\n\n    {line}\n")
    assert re.match("[Nn]o (such )?(command|option)", problem(words))


def keys(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and f"{prefix}{name}" not in WHOLE:
            yield from keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


WHOLE = {"table.categories", "compare", "consents", "labels", "method", "peers"}
"""Tables with keys of the user's, or of a method."""


@pytest.mark.parametrize("page", PAGES)
def test_keys_exist(page: str) -> None:
    known = surface()
    keys_known = {*known["configuration"], *known["participant file"], *WHOLE}
    of_methods = {key for place, names in known.items() if "[method]" in place for key in names}
    for block in blocks(PAGES[page]):
        if block.language != "toml":
            continue
        tree = tomllib.loads(block.text)
        assert set(keys(tree)) <= keys_known, page
        assert set(tree.get("method", {})) <= of_methods, page
    for words in all_commands(PAGES[page]):
        for option, value in pairwise(words):
            key = value.partition("=")[0].removeprefix("method.")
            if option == "--set" and "=" in value and "..." not in value:
                known_here = of_methods if value.startswith("method.") else keys_known
                assert key in known_here, (page, value)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_are_python(page: str) -> None:
    for block in blocks(PAGES[page]):
        if block.language == "python":
            compile(block.text, page, "exec")


def given(page: str) -> None:
    """What a page presumes: files that the reader has, and what earlier pages made."""
    Path("examples").symlink_to(ROOT / "examples")
    if page.endswith("use-a-model.md"):
        Federation(small(), out=Path("runs/pfedes-digits")).run()
        Path("more-scans").mkdir()
        for place in ("scan.png", "more-scans/1.png"):
            Image.fromarray(np.full((16, 16), 90, np.uint8)).save(place)
    if page.endswith("clinic.md"):
        lines = ["patient,hospital,age,chol,sex,cp,remarks,disease"]
        for n in range(120):
            where = ("north", "south")[n % 2]
            row = (n, where, 30 + n % 50, 180 + n, "fm"[n % 3 > 0], n % 4, "")
            lines.append(",".join(map(str, (*row, ("yes", "no")[n % 5 > 1]))))
        Path("patients.csv").write_text("\n".join(lines))
        rows = [",".join(line.split(",")[2:6]) for line in lines[:4]]
        Path("new-patients.csv").write_text("\n".join(rows))


def cheaper(function: Callable[..., Any]) -> Callable[..., Any]:
    """`pfedes.run` or `pfedes.compare` with few digits."""

    def call(*, settings: Mapping[str, Any] | None = None, rounds: int = 1, **options: Any) -> Any:
        return function(settings={**FEW, **(settings or {})}, quiet=True, **options)

    return call


def follow(block: Block, monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]) -> None:
    """Does what a block says; `names` are those of the page's earlier blocks of Python."""
    if block.language == "python":
        exec(compile(block.text, "page", "exec"), names)
        return
    for name, *rest in block.commands():
        if name == "cd":
            monkeypatch.chdir(rest[0])
        elif name == "export":
            variable, _, value = rest[0].partition("=")
            monkeypatch.setenv(variable, value)
            if variable == "PYTHONPATH":
                monkeypatch.syspath_prepend(value)
        elif name == "pfedes":
            cheap: Mapping[str, Any] = CHEAP if rest[0] in ("run", "compare") else {}
            if "--data" not in rest and not any(word.endswith(".toml") for word in rest) and cheap:
                cheap = FEW
            rest += [f"--set={key}={json.dumps(value)}" for key, value in cheap.items()]
            done = command(*rest)
            assert done.returncode == 0, f"pfedes {' '.join(rest)}: {done.stderr}"
        else:
            raise ConfigError(f"no test can run {name!r}: unmark the block")


@pytest.mark.parametrize("page", RUNNABLE)
def test_what_is_marked_runs(
    page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cells_here: None
) -> None:
    """Every marked block of a page, in order, in one directory: some twenty small runs in all."""
    place = tmp_path / "reader"
    place.mkdir()
    monkeypatch.chdir(place)
    given(page)
    for name in ("run", "compare"):
        monkeypatch.setattr(pfedes, name, cheaper(getattr(pfedes, name)))
    names: dict[str, Any] = {"__name__": "page"}
    ran = 0
    for block in blocks(PAGES[page]):
        if block.file is not None and not Path(block.file).exists():
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.text)
        if block.runs:
            follow(block, monkeypatch, names)
            ran += 1
    assert ran


def test_the_pages_of_newcomers_are_run() -> None:
    here = {Path(page).stem for page in RUNNABLE}
    assert here >= {"index", "bring-your-own", "use-a-model", "extend", "clinic", "notebooks"}


def test_blocks_are_found() -> None:
    text = f"x\n\n{RUN}\n\n    pfedes run  # a\n    cd y\n\nz\n\n```toml\n# a.toml\nb = 1\n```\n"
    shell, toml = blocks(text)
    assert (shell.runs, list(shell.commands())) == (True, [["pfedes", "run"], ["cd", "y"]])
    assert (toml.runs, toml.file, toml.text) == (False, "a.toml", "# a.toml\nb = 1\n")
