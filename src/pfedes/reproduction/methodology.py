"""Where an experiment's numbers come from: the command, the runs, the machine and the time."""

from collections.abc import Iterator

from pfedes.files import parse_json, read
from pfedes.formatting import counted
from pfedes.reproduction.experiment import Experiment, Results
from pfedes.reproduction.record import Record
from pfedes.reproduction.scale import ALL
from pfedes.reproduction.scenario import DATA, name_in_print
from pfedes.results.summary import Row
from pfedes.results.table import Table


def origin(experiment: Experiment, results: Results) -> Iterator[str]:
    """What it takes to get these numbers again, in sentences."""
    records, wanted = _records(experiment, results)
    others = results.scale.methods if experiment.compares else (ALL,)
    methods = "" if others == (ALL,) else f" --methods {','.join(others)}"
    yield f"`pfedes paper {experiment.name} --scale {results.scale.name}{methods}`"
    if not wanted:
        return
    if not records:
        yield f"{counted(wanted, 'run')}, none of them finished."
        return
    hours = sum(map(minutes, records)) / 60
    yield (
        f"{len(records)} of {counted(wanted, 'run')} finished, a core each, {hours:.1f} hours in "
        "all, every round counted as long as its run's median one: [runs.csv](runs.csv) has every "
        "run's seed, result and time."
    )
    yield from dict.fromkeys(_machine(environment(record)) for record in records)


def runs(experiment: Experiment, results: Results) -> Table:
    """A row for every finished run."""
    columns = ["run", "method", "settings", "data", "N", "C", "T", "E", "B", "models", "seed"]
    columns += ["accuracy (%)", "minutes", "commit"]
    rows = []
    for record in _records(experiment, results)[0]:
        config, train = record.config, record.config.train
        chosen = config.method.model_dump(exclude_defaults=True, exclude={"name"})
        source = config.data.source.partition(":")[0]
        rows.append(
            [
                record.directory.name,
                name_in_print(config.method.name),
                " ".join(f"{key}={value}" for key, value in chosen.items()),
                DATA.get(source, source),
                str(config.partition.clients),
                f"{train.participation:g}",
                *map(str, (train.rounds, train.epochs, train.batch_size)),
                " ".join(config.models.pool),
                str(config.seed),
                f"{100 * record.accuracy:.2f}",
                f"{minutes(record):.1f}",
                str(environment(record).get("commit") or "")[:8],
            ]
        )
    return Table(columns, rows)


def minutes(record: Record) -> float:
    """A run's rounds, each as long as the median one."""
    return len(record.rounds) * record.usual_seconds / 60


def environment(record: Record) -> Row:
    """What a run knew of its machine."""
    path = record.directory / "environment.json"
    return dict(parse_json(path, read(path)))


def _records(experiment: Experiment, results: Results) -> tuple[list[Record], int]:
    """The finished runs, every point of a grid among them, and how many there should be."""
    cells = {
        cell.name: cell
        for setting in experiment.settings(results.scale)
        for cell in results.cells(setting)
    }
    found = (results.record_of(cell) for cell in cells.values())
    return [record for record in found if record is not None], len(cells)


def _machine(facts: Row) -> str:
    packages = facts["packages"]
    return (
        f"{facts['processor']}, {counted(facts['cores'], 'core')}, {facts['capability']}; "
        f"pfedes {facts['pfedes']}, Python {facts['python']}, torch {packages['torch']}, "
        f"numpy {packages['numpy']}."
    )
