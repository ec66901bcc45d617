"""docs/reference.md names every field that is written, and no other."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from pfedes import Federation
from pfedes.cli import execute
from pfedes.core.protocol import FailureCode
from running import failing, rows, small

REFERENCE = (Path(__file__).parents[1] / "docs" / "reference.md").read_text()


def section(heading: str) -> set[str]:
    """What a section of the page sets in type of its own."""
    _, _, rest = REFERENCE.partition(f"## {heading}")
    _, _, body = rest.partition("\n")
    named = re.findall(r"`([^`]+)`", body.partition("\n## ")[0])
    return {name for name in named if re.fullmatch(r"[a-z_0-9 ]+", name)}


def test_summary_rounds_and_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "lost")
    Federation(small(), out=tmp_path / "run").run()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    documented = section("Fields of `summary.json`")
    assert summary.keys() <= documented
    assert summary["failed_clients"][0].keys() <= documented
    assert summary["targets"][0].keys() <= documented
    assert set(get_args(FailureCode)) <= documented
    assert documented - {*summary, *summary["failed_clients"][0], *summary["targets"][0]} == {
        *get_args(FailureCode),
        "directory",
    }
    values = {"ok", "failed", "rejected"}
    found = {key for row in rows(tmp_path / "run" / "rounds.jsonl") for key in row}
    assert found - values == section("Fields of `rounds.jsonl`") - values
    found = {key for row in rows(tmp_path / "run" / "clients.jsonl") for key in row}
    assert section("Fields of `clients.jsonl`") - values <= found


def test_files_of_a_run(tmp_path: Path) -> None:
    Federation(small(runtime__report=True), out=tmp_path / "run").run()
    _, _, rest = REFERENCE.partition("## Files of a run")
    table = rest.partition("\n## ")[0]
    documented = re.findall(r"^\| `([a-z.]+)/?` ", table, re.MULTILINE)
    assert {path.name for path in (tmp_path / "run").iterdir()} == set(documented)


def test_status() -> None:
    from pfedes.deploy.coordinator.status import Person, Status

    names = {field.name for kind in (Person, Status) for field in fields(kind)}
    assert names <= section("Federations")


def test_exit_codes_of_help_and_wrong_input() -> None:
    assert (execute([]), execute(["run", "--rounds", "none"])) == (0, 2)
