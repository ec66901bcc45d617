"""The notebook: it runs as it stands, from a first run to a row in the paper's table."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install 'pfedes[dev]'")
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "own-method.ipynb"


def cells(notebook: Any) -> Iterator[Any]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_outputs_are_stripped() -> None:
    notebook = read()
    nbformat.validate(notebook)
    assert len(list(cells(notebook))) > 5
    for cell in cells(notebook):
        assert cell.outputs == []
        assert cell.execution_count is None


def shown(cell: Any, kind: str = "text/html") -> str:
    return "".join(output.data[kind] for output in cell.outputs if kind in output.get("data", {}))


@pytest.mark.repeat
@pytest.mark.filterwarnings("ignore")  # those of a kernel and its messages
def test_it_runs_to_a_row_in_the_papers_table(tmp_path: Path) -> None:
    """A kernel, and some twenty small runs; `test_api.py` shows the parts without a kernel."""
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install 'pfedes[dev]'")
    pytest.importorskip("ipykernel", reason="needs ipykernel: pip install 'pfedes[dev]'")
    notebook = read()
    client = nbclient.NotebookClient(
        notebook, timeout=1800, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    by_call = {
        call: next(cell for cell in cells(notebook) if f"pfedes.{call}(" in cell.source)
        for call in ("run", "compare", "paper")
    }
    for call, cell in by_call.items():
        assert "<progress " in shown(cell), call
    assert "2 of 2" in shown(by_call["run"])
    assert "MixedStem" in shown(by_call["compare"])
    figures = tmp_path / "runs/compared/figures"
    assert {path.stem for path in figures.glob("*.pdf")} == {
        *("accuracy-over-rounds", "accuracy-over-floats", "accuracy-over-flops"),
        *("clients", "differences"),
    }
    page = (tmp_path / "runs/paper/table-heterogeneous/README.md").read_text()
    assert page.count("| MixedStem |") >= 2  # one table for each data set
    assert "MixedStem" in shown(by_call["paper"])
