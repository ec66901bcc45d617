"""The files that a run ends with, and that `pfedes report` writes at any time."""

import json
from collections.abc import Mapping

from pfedes.files import publish
from pfedes.population.simulation import Simulation
from pfedes.results.run import Run
from pfedes.store.lock import in_turn_at


def result_files(
    run: Run, simulation: Simulation | None = None, *, report: bool = True
) -> dict[str, bytes]:
    """The content of `summary.json` and, if wanted, of `report.html`.

    Give the run's simulation if you have it; otherwise it is built from the configuration.
    """
    files = {"summary.json": json.dumps(run.summary, indent=2).encode()}
    if report:
        # Imported where used: figures take a second to load, and a run may end without a report.
        from pfedes.report.page import render

        # Directories may have names that are no text.
        files["report.html"] = render(run, simulation).encode(errors="replace")
    return files


def write_results(run: Run, simulation: Simulation | None = None, *, report: bool = True) -> None:
    """Writes `summary.json` and `report.html` into the run's directory.

    Args:
        run: The run.
        simulation: The run's data and clients, if they are loaded already.
        report: Whether to write `report.html`.
    """
    publish_results(run, result_files(run, simulation, report=report))


def publish_results(run: Run, files: Mapping[str, bytes]) -> None:
    """Writes what `result_files` gave, unless the run has finished since it was opened.

    Then it writes the final results: another process that made them takes turns with this one.
    """
    with in_turn_at(run.directory):
        now = run.reopened()
        if now.finished and not run.finished:
            files = result_files(now, report="report.html" in files)
        for name, content in files.items():
            publish(run.directory / name, content)
