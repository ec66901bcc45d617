"""What is published is what the finished runs in `results/` say."""

import re
from pathlib import Path

import pytest

from pfedes.formatting import count
from pfedes.reproduction.experiment import Results
from pfedes.reproduction.experiments import experiment_named
from pfedes.reproduction.experiments.ablation import VARIANTS
from pfedes.reproduction.experiments.rules import gap_of
from pfedes.reproduction.experiments.tables import SEEDS, from_paper, seeds_of, setting
from pfedes.reproduction.scale import CONVERGED, LAPTOP
from pfedes.reproduction.scenario import COMPARED, DATA, NAMES, SCENARIOS, Setting
from pfedes.reproduction.writer import texts

PROJECT = Path(__file__).parents[1]
PUBLISHED = PROJECT / "results" / "laptop"
RESULTS = Results(LAPTOP, PUBLISHED)
PAGES = sorted(path.name for path in PUBLISHED.iterdir() if path.name != "cells")
TABLES = [(page[len("table-") :], data) for page in PAGES if "table-" in page for data in DATA]


@pytest.mark.parametrize("name", PAGES)
def test_what_is_published_is_made_from_its_runs(name: str) -> None:
    experiment = experiment_named(name)
    again = texts(experiment.show(RESULTS), experiment, RESULTS)
    there = {
        path.name: path.read_text()
        for path in (PUBLISHED / name).iterdir()
        if path.suffix in (".md", ".csv", ".tex")
    }
    assert there == again


@pytest.mark.parametrize(("kind", "data"), TABLES)
def test_the_documents_numbers_are_the_runs(kind: str, data: str) -> None:
    expected = [
        [NAMES[method], *(accuracy(method, data, clients, kind) for clients in SCENARIOS)]
        for method in COMPARED
    ]
    assert all(all(numbers) for _, *numbers in expected)  # both tables are complete
    assert rows_below(f"{kind.capitalize()} models, {DATA[data]}") == expected


def test_the_documents_ablation_is_the_runs() -> None:
    cells = {name: cell for name, (cell, _) in VARIANTS.items()} | {"FedProto": Setting("fedproto")}
    for name, accuracy, flop in rows_below("How much of the gain is sharing?"):
        cell = cells.pop(name)
        seeds = [cell.with_seed(seed) for seed in SEEDS]
        records = RESULTS.records(seeds)
        assert len(records) == 3
        assert accuracy == str(RESULTS.accuracy(seeds))
        assert flop == count(sum(record.summary["flops"] for record in records) / 3)
    assert not cells


def rows_below(heading: str, level: int = 3) -> list[list[str]]:
    """The cells of the table below a heading of the document."""
    text = (PROJECT / "docs" / "reproduce.md").read_text()
    (section,) = re.findall(rf"^{'#' * level} {re.escape(heading)}\n(.*?)^#", text, re.M | re.S)
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def accuracy(method: str, data: str, clients: int, kind: str) -> str:
    cell = setting(method, data, clients, homogeneous=kind == "homogeneous")
    return str(RESULTS.accuracy(seeds_of(cell)))


def test_both_tables_the_ablation_and_the_theory_are_published() -> None:
    assert len(TABLES) == 4
    assert {"ablation", "claims", "convergence", "theory", "tradeoff"} <= set(PAGES)


def test_results_hold_no_models() -> None:
    files = [path for path in PUBLISHED.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if path.suffix in (".safetensors", ".pt")]
    assert sum(path.stat().st_size for path in files) < 10_000_000


def test_the_documents_numbers_by_both_rules_are_the_runs() -> None:
    converged = Results(CONVERGED, PROJECT / "results" / "converged")
    names = {name: method for method, name in NAMES.items()}
    rows = rows_below("Two rules of measuring", level=2)
    assert len(rows) == 3
    for name, *numbers in rows:
        cell = setting(names[name], "cifar10", 100, homogeneous=False)
        record = converged.record(cell)
        assert record is not None
        gap = gap_of(record, cell)
        paper = from_paper(names[name], "cifar10", 100, homogeneous=False)
        assert numbers == [f"{x:.2f}" for x in (gap.mean, gap.selected, gap.computed, paper or 0)]
    picture = PUBLISHED / "rules" / "rules.svg"
    assert (PROJECT / "docs" / "rules.svg").read_bytes() == picture.read_bytes()
