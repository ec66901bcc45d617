"""The public names are few, listed one by one, and all there."""

import ast
import subprocess
import sys
from pathlib import Path

import pfedes


def test_every_listed_name_can_be_imported() -> None:
    for name in pfedes.__all__:
        assert getattr(pfedes, name) is not None
    assert sorted(pfedes.__all__[1:]) == pfedes.__all__[1:]
    assert dir(pfedes) == sorted(pfedes.__all__)


def test_the_names_for_type_checkers_are_the_same() -> None:
    tree = ast.parse(Path(pfedes.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = [alias.asname for node in block.body for alias in node.names]
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
