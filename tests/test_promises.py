"""Every promise of the documents names a test, which is there and runs in `make test`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
PROMISING = ("reliability.md", "deploy.md", "cluster.md", "security.md", "compatibility.md")
PROMISES = {"promise", "attack", "what happens", "a later version"}  # each row of them is one

Row = dict[str, str]


def tables(text: str) -> Iterator[list[Row]]:
    """The tables of a Markdown text, as rows by column."""
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        header, _, *rows = [_cells(line) for line in block.splitlines()]
        yield [dict(zip(header, row, strict=True)) for row in rows]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]


def promises(document: str) -> list[Row]:
    """The rows that say what holds, in tables with a column for the test that shows it."""
    text = (DOCS / document).read_text()
    return [row for table in tables(text) if table and "test" in table[0] for row in table]


def found_in(file: str) -> dict[str, bool]:
    """The tests in a file, and whether each runs in `make test`."""
    tree = ast.parse((TESTS / file).read_text())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: not any(
            ast.unparse(mark).endswith("mark.repeat") for mark in node.decorator_list
        )
        for node in found
        if node.name.startswith("test_")
    }


@pytest.mark.parametrize("document", PROMISING)
def test_every_promise_names_tests_that_run(document: str) -> None:
    rows = promises(document)
    assert rows
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", row["test"])
        assert named, row
        for file, test in named:
            assert (TESTS / file).is_file(), row
            tests = found_in(file)
            assert any(tests.values()), f"{file} only repeats: {row}"
            assert not test or tests.get(test), f"{file}::{test} does not run: {row}"


@pytest.mark.parametrize("document", PROMISING)
def test_every_table_of_promises_names_tests(document: str) -> None:
    """What a document says of attacks and mishaps are promises, too."""
    found = [t for t in tables((DOCS / document).read_text()) if t and PROMISES & t[0].keys()]
    assert found
    assert all("test" in table[0] for table in found)


def test_a_table_is_read_as_it_is_written() -> None:
    text = "x\n\n| promise | test |\n|---|---|\n| a \\| b | `test_a.py` |\n\n| c |\n|---|\n"
    assert list(tables(text)) == [[{"promise": "a \\| b", "test": "`test_a.py`"}], []]
