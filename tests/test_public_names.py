"""The public names are few, listed one by one, and all there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pfedes
from pfedes import errors, methods


def test_every_listed_name_can_be_imported() -> None:
    for name in pfedes.__all__:
        assert getattr(pfedes, name) is not None
    assert sorted(pfedes.__all__[1:]) == pfedes.__all__[1:]
    assert dir(pfedes) == sorted(pfedes.__all__)


def names_in(statement: ast.stmt) -> list[ast.alias]:
    assert isinstance(statement, ast.ImportFrom)
    return statement.names


def test_the_names_for_type_checkers_are_the_same() -> None:
    tree = ast.parse(Path(pfedes.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = [alias.asname for node in block.body for alias in names_in(node)]
    assert sorted(filter(None, imported)) == pfedes.__all__[1:]


def test_what_is_not_listed_is_not_there() -> None:
    assert not hasattr(pfedes, "nonsense")


def test_every_public_name_is_documented() -> None:
    for name in pfedes.__all__[1:]:
        assert getattr(pfedes, name).__doc__, name


def test_importing_the_package_or_the_command_line_is_light() -> None:
    code = (
        "import sys, pfedes.cli; print({'torch', 'numpy', 'sklearn', 'pydantic'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_exception_is_public() -> None:
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert {name for name in kinds if name.endswith("Error")} <= set(pfedes.__all__)


def test_a_method_can_be_written_with_one_import() -> None:
    """What examples and `docs/extend.md` take from elsewhere is missing at this door."""
    for name in methods.__all__:
        assert getattr(methods, name).__doc__, name
    assert sorted(methods.__all__) == methods.__all__
    root = Path(__file__).parents[1]
    text = (root / "docs" / "extend.md").read_text()
    text += (root / "examples" / "shared_stem.py").read_text()
    taken = set(re.findall(r"from (pfedes[\w.]*) import", text))
    assert taken <= {"pfedes", "pfedes.methods"}
