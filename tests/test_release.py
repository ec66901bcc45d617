"""A release is one version everywhere, and its workflows do what developers do."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import pfedes

ROOT = Path(__file__).parents[1]
RELEASED = r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$"


def test_the_version_has_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    attribute = project["tool"]["setuptools"]["dynamic"]["version"]["attr"]
    assert attribute == "pfedes.version.__version__"
    sources = (path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert sum(f'"{pfedes.__version__}"' in text for text in sources) == 1


def test_changelog_and_citation_name_the_version() -> None:
    released = re.findall(RELEASED, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert released[0] == (citation["version"], citation["date-released"].isoformat())
    assert citation["version"] == pfedes.__version__
    numbers = [tuple(map(int, version.split("."))) for version, _ in released]
    assert numbers == sorted(numbers, reverse=True)
    dates = [date for _, date in released]
    assert dates == sorted(dates, reverse=True)


@pytest.mark.parametrize("file", sorted((ROOT / ".github/workflows").glob("*.yml")))
def test_workflows_call_what_is_there(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    called = [job["uses"] for job in workflow["jobs"].values() if "uses" in job]
    for other in called:
        # YAML takes the key `on` for true.
        assert "workflow_call" in yaml.safe_load((ROOT / other).read_text())[True]
    jobs = [job for job in workflow["jobs"].values() if "uses" not in job]
    assert all("timeout-minutes" in job for job in jobs)
    steps = [step for job in jobs for step in job["steps"]]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    assert all(re.fullmatch(r"[\w/-]+@[\w/.]+", step.get("uses", "a/b@v1")) for step in steps)
    made = {
        goal for step in steps for goal in re.findall(r"\bmake (\w[\w-]*)", step.get("run", ""))
    }
    goals = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert made <= set(goals)


def test_the_pythons_that_are_named_are_those_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_nothing_is_published_that_was_not_tested() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert set(jobs["publish"]["needs"]) == {"tests", "build"}
    assert jobs["tests"]["uses"] == "./.github/workflows/ci.yml"
