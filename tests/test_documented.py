"""Everything behind the public doors says what it takes, and all examples are true."""

import ast
import doctest
import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, Field

import pfedes
from pfedes import methods
from worn_phrases import worn

DOORS: tuple[ModuleType, ...] = (pfedes, methods)
NAMES = [(door, name) for door in DOORS for name in door.__all__ if name != "__version__"]
ROOT = Path(__file__).parents[1]
RESULT = re.compile(r"\b[Rr]eturns\b|^(A|The|All|Whether)\b", re.MULTILINE)
DEFINITIONS = (ast.ClassDef, ast.FunctionDef)


def parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A public function, or a public class with the functions and properties that it defines."""
    yield name, value
    if not inspect.isclass(value):
        return
    for key, member in vars(value).items():
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if not key.startswith("_") and inspect.isfunction(function):
            yield f"{name}.{key}", function if not isinstance(member, property) else member


def arguments(value: Any) -> list[str]:
    if isinstance(value, property) or (inspect.isclass(value) and issubclass(value, BaseModel)):
        return []  # every key of a configuration has a description
    if inspect.isclass(value) and "__init__" not in vars(value):
        return []  # takes what its base takes
    parameters = list(inspect.signature(value).parameters.values())
    return [p.name for p in parameters if p.name not in ("self", "cls")]


def missing(name: str, value: Any, owner: Any) -> list[str]:
    """What a docstring leaves out. What overrides another may leave it to that one."""
    text = inspect.getdoc(value) or ""
    if not text:
        return [f"{name} has no docstring"]
    bases = owner.__mro__[1:] if inspect.isclass(owner) else ()
    key = name.rpartition(".")[2]
    inherited = bases if value is owner else [getattr(base, key, None) for base in bases]
    text += "".join(inspect.getdoc(base) or "" for base in inherited)
    absent = [argument for argument in arguments(value) if f"\n    {argument}: " not in f"\n{text}"]
    found = [f"{name}: {argument} is not documented" for argument in absent]
    return [*found, f"{name}: the result is not documented"] if silent(value, text) else found


def silent(value: Any, text: str) -> bool:
    """Whether a function returns something that its docstring does not describe."""
    if not inspect.isfunction(value) or RESULT.search(text):
        return False
    result = inspect.signature(value).return_annotation
    return result not in (None, "None", inspect.Signature.empty, Iterator[None])


@pytest.mark.parametrize(("door", "name"), NAMES, ids=[name for _, name in NAMES])
def test_arguments_are_documented(door: ModuleType, name: str) -> None:
    value = getattr(door, name)
    owner = value if inspect.isclass(value) else None
    found = [line for part, it in parts(name, value) for line in missing(part, it, owner)]
    assert found == []


def nameless(section: type[BaseModel]) -> Iterator[str]:
    """The keys of a section, and of the sections in it, that nothing describes."""
    for key, field in section.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from nameless(type(field.default))
        elif key != "name" and not field.description:
            yield f"{section.__name__}: {key}"


def test_keys_of_configurations_are_documented() -> None:
    sections: list[type[BaseModel]] = [pfedes.Config, pfedes.Participant]
    sections += [method.Config for method in methods.METHODS.values()]
    for section in sections:
        assert list(nameless(section)) == []


def test_keys_without_a_description_are_found() -> None:
    class Inner(BaseModel):
        said: int = Field(0, description="Says.")
        silent: int = 0

    class Outer(BaseModel):
        inner: Inner = Inner()
        also: int = 0

    assert list(nameless(Outer)) == ["Inner: silent", "Outer: also"]


def test_what_is_left_out_is_found() -> None:
    def bare(x: int) -> None: ...

    def half(x: int, y: int) -> None:
        """Adds.

        Args:
            x: One.
        """

    def whole(x: int) -> int:
        """Adds.

        Args:
            x: One.
        """
        return x

    class Kind:
        """A kind."""

        def __init__(self, size: int) -> None: ...

        @property
        def empty(self) -> bool:
            return True

        def grow(self, by: int) -> int:
            """Returns the new size."""
            return by

    assert missing("bare", bare, None) == ["bare has no docstring"]
    assert missing("half", half, None) == ["half: y is not documented"]
    assert missing("whole", whole, None) == ["whole: the result is not documented"]
    assert [line for name, part in parts("Kind", Kind) for line in missing(name, part, Kind)] == [
        "Kind: size is not documented",
        "Kind.empty has no docstring",
        "Kind.grow: by is not documented",
    ]


def sources() -> dict[str, str]:
    """The text of every module of the package, by the module's name."""
    package = ROOT / "src" / "pfedes"
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return found


def undocumented(texts: Mapping[str, str]) -> list[str]:
    """Functions and classes without a docstring that a module of another package imports."""
    trees = {module: ast.parse(text) for module, text in texts.items()}
    taken = {
        (node.module, alias.name)
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in trees
        for alias in node.names
        if node.module.split(".")[:2] != module.split(".")[:2]
    }
    return sorted(
        f"{module}.{node.name} has no docstring"
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, DEFINITIONS)
        and (module, node.name) in taken
        and not ast.get_docstring(node)
    )


def test_what_other_packages_use_is_documented() -> None:
    assert undocumented(sources()) == []


def test_what_other_packages_use_is_found() -> None:
    texts = {
        "pfedes.a.b": "def used(): ...\ndef unused(): ...\ndef said():\n    'Says.'",
        "pfedes.a.c": "from pfedes.a.b import unused",
        "pfedes.d": "from pfedes.a.b import said, used",
    }
    assert undocumented(texts) == ["pfedes.a.b.used has no docstring"]


EXAMPLES = [module for module, text in sources().items() if ">>> " in text]


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_are_true(module: str) -> None:
    done = doctest.testmod(import_module(module))
    assert done.failed == 0
    assert done.attempted > 0, "the example is not in a docstring"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 8


PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_page_begins_with_its_readers(page: Path) -> None:
    first, second, *_ = page.read_text(encoding="utf-8").split("\n\n")
    assert first.startswith("# ")
    assert second.startswith("For everybody who") or page.stem == "index"


def test_worn_phrases_are_found() -> None:
    text = "The run\ngoes\non, but\nfor its own sake."
    assert sorted(worn(text)) == [(2, "goes on", "continue"), (3, "but for its", "except")]
    assert not list(worn("The run continues. It depends on going."))
