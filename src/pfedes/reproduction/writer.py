"""An exhibit as files: tables to paste, figures to print, and one page that shows them all."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pfedes.files import publish, writing
from pfedes.report.figure_files import in_every_format
from pfedes.reproduction.experiment import Exhibit, Experiment, Results
from pfedes.reproduction.methodology import origin, runs
from pfedes.reproduction.scale import Scale


def write(exhibit: Exhibit, experiment: Experiment, results: Results) -> list[Path]:
    """Writes everything below the results and says what was written, the page first."""
    directory = results.root / experiment.name
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    files = {name: text.encode() for name, text in texts(exhibit, experiment, results).items()}
    for name, figure in exhibit.figures.items():
        files |= in_every_format(name, figure)
    for name, content in files.items():
        publish(directory / name, content)
    return [directory / name for name in files]


def marked(exhibit: Exhibit, experiment: Experiment, scale: Scale) -> Exhibit:
    """The exhibit as it may be shown: on stand-in data, every part of it says so.

    Tables and figures are taken out of their page and pasted elsewhere.
    """
    if not scale.stand_ins or experiment.deviations is not None:
        return exhibit
    figures = {}
    for name, figure in exhibit.figures.items():
        figure.text(0.995, 0.005, _mark(scale, name), ha="right", va="bottom", fontsize=6)
        figures[_marked_name(scale, name)] = figure
    tables = {}
    for name, table in exhibit.tables.items():
        columns = [f"{table.columns[0]} ({_mark(scale, name)})", *table.columns[1:]]
        tables[_marked_name(scale, name)] = replace(table, columns=columns)
    return replace(exhibit, tables=tables, figures=figures)


def _mark(scale: Scale, name: str) -> str:
    """What stands in for the paper's data in a table or figure; it may be of all of them."""
    stand_ins = scale.stand_ins
    used = [stand_ins[part] for part in name.split("-") if part in stand_ins]
    used = used or [*stand_ins.values()]
    return f"scale {scale.name}, {' and '.join(used)} images instead of CIFAR"


def _marked_name(scale: Scale, name: str) -> str:
    parts = [scale.stand_ins.get(part, part) for part in name.split("-")]
    return "-".join([scale.name, *parts])


def texts(exhibit: Exhibit, experiment: Experiment, results: Results) -> dict[str, str]:
    """The page, the tables and the list of runs, by the names of their files."""
    files = {"README.md": page(exhibit, experiment, results)}
    if (origins := runs(experiment, results)).rows:
        files["runs.csv"] = origins.to_csv()
    caveats = [
        f"Scale {results.scale.name}. {text}" for text in _deviations(experiment, results.scale)
    ]
    for name, shown in exhibit.tables.items():
        # A table is pasted alone: what it must not be read without goes with it.
        table = replace(shown, notes=[*shown.notes, *exhibit.notes, *caveats])
        files[f"{name}.md"] = table.to_markdown()
        files[f"{name}.csv"] = table.to_csv()
        files[f"{name}.tex"] = table.to_latex()
    return files


def page(exhibit: Exhibit, experiment: Experiment, results: Results) -> str:
    """All of it as Markdown."""
    return "\n\n".join(_parts(exhibit, experiment, results)) + "\n"


def _deviations(experiment: Experiment, scale: Scale) -> tuple[str, ...]:
    return scale.deviations if experiment.deviations is None else experiment.deviations


def _parts(exhibit: Exhibit, experiment: Experiment, results: Results) -> Iterator[str]:
    scale = results.scale
    yield f"# {experiment.title}"
    about = f": {scale.about}" if experiment.deviations is None else ""
    yield f"{experiment.source}. Scale `{scale.name}`{about}."
    for name in exhibit.figures:
        alternative = experiment.title
        if len(exhibit.figures) > 1:
            alternative += f": {name.replace('_', ' ')}"
        yield f"![{alternative}]({name}.png)"
    for name, table in exhibit.tables.items():
        yield f"## {name}\n\n{table.to_markdown().rstrip()}"
    for heading, lines in (
        ("Notes", exhibit.notes),
        ("What differs from the paper", _deviations(experiment, scale)),
        ("How it was run", [*origin(experiment, results)]),
    ):
        if lines:
            yield f"## {heading}\n\n" + "\n".join(f"- {line}" for line in lines)
