"""Repeating the paper's experiments from a script or a notebook, as `pfedes paper` does."""

import base64
import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pfedes.api.compare import Chosen
from pfedes.api.overview import Overview
from pfedes.config import configure
from pfedes.config.runtime import RuntimeConfig
from pfedes.errors import ConfigError, MethodError, StoreError, unknown
from pfedes.files import at_home
from pfedes.formatting import listed
from pfedes.methods import known_name, method_class
from pfedes.reproduction.estimate import samples_seen
from pfedes.reproduction.experiment import Experiment, Results
from pfedes.reproduction.experiments import experiment_named, experiments
from pfedes.reproduction.record import Record
from pfedes.reproduction.runner import Campaign
from pfedes.reproduction.scale import ALL, scale_named
from pfedes.reproduction.scenario import LISTED
from pfedes.reproduction.writer import marked, write
from pfedes.results.table import Table
from pfedes.sweep.cells import Cell, nth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST_SHOWN = 0.25
"""Of an experiment's runs. Experiments share runs, so that most have one long before their own."""


@dataclass(frozen=True)
class PaperPage:
    """The tables and figures of an experiment, and the files with them, the page first."""

    name: str
    title: str
    source: str
    tables: Mapping[str, Table]
    figures: "Mapping[str, Figure]"
    notes: Sequence[str]
    files: Sequence[Path]

    def __repr__(self) -> str:
        place = f": {self.files[0]}" if self.files else f": {' '.join(self.notes)}"
        return f"<PaperPage {self.name}{place}>"

    def _repr_html_(self) -> str:
        """The figures, tables and notes as HTML, for notebooks."""
        from pfedes.report.figure_files import drawn

        parts = [f"<p><b>{html.escape(self.title)}</b> ({html.escape(self.source)})</p>"]
        for name, figure in self.figures.items():
            picture = base64.b64encode(drawn(figure, "png")).decode()
            parts.append(
                f'<img alt="{html.escape(name)}" width="720" src="data:image/png;base64,{picture}">'
            )
        for table in self.tables.values():
            parts.append(table.to_html())
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return "".join([*parts, f"<ul>{notes}</ul>"])


def paper(
    name: str,
    *,
    scale: str = "smoke",
    methods: str | Sequence[Chosen] = ALL,
    data_dir: Path | str | None = None,
    out: Path | str | None = None,
    jobs: int = 0,
    cluster: str | None = None,
    tls: Path | str | None = None,
    draw: bool = False,
    cell: int | None = None,
    keep_states: bool = False,
    archive: Path | str | None = None,
    against: str = "",
    quiet: bool = False,
) -> dict[str, PaperPage]:
    """Repeats a table or figure of the paper.

    The options are those of `pfedes paper`; `pfedes paper list` lists the experiments.

    Args:
        name: Name of an experiment, or "all".
        scale: smoke, laptop, converged or full.
        methods: Methods to compare: names, classes or objects; "all" means the experiment's own.
        data_dir: The data sets' directory or its parent.
        out: Directory of runs and results, runs/paper-SCALE if None; finished runs in it are not
            repeated.
        jobs: Runs at a time; 0 = one per core.
        cluster: Address of a Dask scheduler.
        tls: Directory with the certificates of the cluster.
        draw: Whether to run nothing, and show the results so far.
        cell: Number of the only run to do; 1 is the first.
        keep_states: Whether to keep all clients' models of finished runs.
        archive: Directory to which the records of finished runs are copied.
        against: Method to which differences are shown; the best baseline if empty.
        quiet: Whether to show no progress.

    Returns:
        A page for each experiment, by its name, with `tables`, `figures`, `notes` and the `files`
        that were written.

    Raises:
        ConfigError: There is no such experiment, scale or method, or it compares no methods.
        StoreError: `out` is not a directory.
    """
    names = methods if isinstance(methods, str) else ",".join(map(_name, methods))
    work = campaign_of(
        name,
        scale,
        names,
        Path(out) if out else None,
        Path(data_dir) if data_dir else None,
        Path(archive) if archive else None,
        against,
    )
    runtime = configure(cluster=cluster, tls=tls).runtime if cluster or tls else None
    work.bring()
    results = Results(work.scale, work.root)
    if not draw:
        only = nth(work.cells(), cell) if cell is not None else None
        results = perform(
            work, only, jobs=jobs, cluster=runtime, keep_states=keep_states, quiet=quiet
        )
    return {page.name: page for page in pages(work, results, against)}


def _name(method: Chosen) -> str:
    return ALL if method == ALL else known_name(method)


def campaign_of(
    name: str,
    scale_name: str,
    methods: str,
    out: Path | None,
    data_dir: Path | None,
    archive: Path | None,
    against: str = "",
) -> Campaign:
    """The runs of one experiment, or of all; wrong names and places raise an error."""
    chosen = list(experiments().values()) if name == ALL else [experiment_named(name)]
    compared = tuple(part.strip() for part in methods.split(","))
    for each in compared:
        if each != ALL:
            method_class(each)
    if against and against not in (*LISTED, *compared):
        raise ConfigError(unknown("method", against, [*LISTED, *compared]))
    if compared != (ALL,) and not any(experiment.compares for experiment in chosen):
        able = [each.name for each in experiments().values() if each.compares]
        raise ConfigError(
            f"{name} does not compare methods: --methods is for {listed(able, len(able))}"
        )
    scale = replace(scale_named(scale_name), methods=compared)
    root = out or Path("runs") / f"paper-{scale.name}"
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} exists and is not a directory: choose another --out")
    data = str(at_home(data_dir).absolute()) if data_dir else ""
    return Campaign(chosen, scale, root, data, archive)


def perform(
    work: Campaign,
    only: Cell | None,
    *,
    jobs: int,
    cluster: RuntimeConfig | None,
    keep_states: bool,
    quiet: bool,
) -> Results:
    """Runs what is missing, or one cell; shows progress unless that is to be quiet."""
    missing = work.missing() if only is None else [only]
    progress = None
    if missing and not quiet:
        progress = Overview(missing, lambda cell: samples_seen(cell.config))
    try:
        results = work.perform(
            list(experiments().values()),
            only=only,
            jobs=jobs,
            cluster=cluster,
            keep_states=keep_states,
            watch=progress,
        )
    finally:
        if progress is not None:
            progress.stop()
    if only is not None and Record.of(only.directory, only.config) is None:
        raise MethodError(f"{only.name}: {results.reason_of(only)}")
    return results


def pages(work: Campaign, results: Results, against: str = "") -> Iterator[PaperPage]:
    """Writes and returns each experiment's page; one with few runs among others has no files."""
    results.against = against
    for experiment in work.experiments:
        about = (experiment.name, experiment.title, experiment.source)
        if len(work.experiments) > 1 and (finished := _too_little(experiment, results)):
            yield PaperPage(*about, {}, {}, [f"{finished}, no page yet"], [])
            continue
        exhibit = marked(experiment.show(results), experiment, results.scale)
        written = write(exhibit, experiment, results)
        yield PaperPage(*about, exhibit.tables, exhibit.figures, exhibit.notes, written)
    work.put_away(work.cells())


def _too_little(experiment: Experiment, results: Results) -> str:
    """How little of an experiment has been run, where that is not worth a page among others."""
    wanted = experiment.settings(results.scale)
    finished = len(results.records(wanted))
    return f"{finished} of {len(wanted)} runs" if finished < LEAST_SHOWN * len(wanted) else ""
