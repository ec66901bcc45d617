"""The rooms of the house: what imports what, where modules lie, and what they are called."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pfedes

PACKAGE = Path(pfedes.__file__).parent
MIRRORED_FILES = {
    # A command and what it calls.
    *("adopt.py", "compare.py", "config.py", "join.py", "run.py", "serve.py", "status.py"),
    "paper.py",
    # The same part of two engines, or of a report and of the paper's experiments.
    *("fleet.py", "messages.py", "process.py", "enhanced.py", "wire.py", "estimate.py"),
    *("experiment.py", "figures.py", "tables.py"),
    # FLARE's, hardened.
    *("arrays.py", "job.py", "version.py", "names.py"),
    *("__init__.py", "base.py"),
}
MIRRORED_CLASSES = {"CNN", "Fused", "NearestPrototype"}
"""export/model.py goes out as it is and imports nothing of ours, so it has its own."""


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ["pfedes", *path.relative_to(PACKAGE).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_by(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Everything of ours that a file imports, inside functions and for type checkers, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                yield from {inside if inside in known else node.module} & known.keys()


def test_no_module_imports_itself_by_a_detour() -> None:
    known = modules()
    graph = {name: set(imported_by(path, known)) - {name} for name, path in known.items()}
    assert sum(map(len, graph.values())) > 500  # it sees imports at all
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_no_test_module_imports_another() -> None:
    known = {path.stem: path for path in Path(__file__).parent.glob("test_*.py")}
    for name, path in known.items():
        assert not set(imported_by(path, known)), name


def test_few_modules_lie_at_the_root() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 10


def test_file_names_occur_once() -> None:
    names = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        names[path.name].append(path)
    twice = {name for name, paths in names.items() if len(paths) > 1}
    assert twice == MIRRORED_FILES


def test_class_names_occur_once() -> None:
    homes = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(path)
    assert {name for name, paths in homes.items() if len(paths) > 1} == MIRRORED_CLASSES
