"""The same federation by several methods, on equal terms.

Partition, architectures, initial weights, client selections and the local budget come from the
seed and from the common settings, so they are the same for every method.
"""

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pfedes.config import Config, configure_from
from pfedes.core.measures import Metric
from pfedes.errors import ConfigError
from pfedes.formatting import count, counted, listed, percent
from pfedes.methods import display_name, method_class
from pfedes.results.classwise import MOST_NAMED
from pfedes.results.paired import Difference, difference
from pfedes.results.run import Run
from pfedes.results.table import Table
from pfedes.sweep.cells import Cell, Outcome

SERIAL = {
    "runtime.fleet": "serial",  # cells run side by side, each in one process
    # The place where they run is not part of their identity.
    **dict.fromkeys(
        ("runtime.cluster", "runtime.tls_ca", "runtime.tls_cert", "runtime.tls_key"), ""
    ),
}


@dataclass(frozen=True)
class Candidate:
    """A method with one choice of its settings: a point of its grid, if it has one."""

    method: str
    point: Mapping[str, Any]

    @property
    def path(self) -> Path:
        if not self.point:
            return Path(self.method)
        text = ",".join(f"{key}={value}" for key, value in self.point.items())
        return Path(self.method) / text.replace("/", "-")


def cells_of(config: Config, methods: Sequence[str], seeds: Sequence[int], out: Path) -> list[Cell]:
    """A cell for every method, point of its grid, and seed."""
    return [
        Cell(str(place), chosen, out / place, candidate.point)
        for method in methods
        for candidate, settings in candidates(config, method)
        for seed in seeds
        for place in [candidate.path / f"seed-{seed}"]
        for chosen in [configure_from(config, method, {**SERIAL, **settings}, seed)]
    ]


def candidates(config: Config, method: str) -> Iterator[tuple[Candidate, dict[str, Any]]]:
    """The configurations of `[compare.METHOD]`: a list instead of a value is a grid's axis."""
    keys = config.compare.get(method, {})
    fields = method_class(method).Config.model_fields
    own = {field.alias or name for name, field in fields.items()}
    axes = {key: value for key, value in keys.items() if isinstance(value, list)}
    for key, axis in axes.items():
        if not axis:
            raise ConfigError(f"compare.{method}.{key} = []: a grid needs values")
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        chosen = {**keys, **point}
        settings = {
            f"method.{key}" if key in own or "." not in key else key: value
            for key, value in chosen.items()
        }
        yield Candidate(method, point), settings


@dataclass(frozen=True)
class Result:
    """One method over all seeds; or why it has none."""

    method: str
    point: Mapping[str, Any]
    summaries: Sequence[Mapping[str, Any]]
    validation: float | None
    reason: str = ""
    runs: Sequence[Run] = ()

    @property
    def label(self) -> str:
        """What people read."""
        return display_name(self.method)

    def over_seeds(self, key: str) -> tuple[float | None, float | None]:
        """Mean and standard deviation over seeds; nothing where no run has such a number."""
        known = [summary.get(key) for summary in self.summaries]
        values = [value for value in known if value is not None]
        if not values:
            return None, None
        spread = statistics.stdev(values) if len(values) > 1 else None
        return statistics.fmean(values), spread

    @property
    def by_server(self) -> float | None:
        """The server's FLOPs, over seeds; None for methods that do not train there."""
        spent = [summary.get("flops_server", 0) for summary in self.summaries]
        return statistics.fmean(spent) if any(spent) else None

    def record(self) -> dict[str, Any]:
        """All that is known, as numbers."""
        row: dict[str, Any] = {"method": self.method, "settings": dict(self.point)}
        if self.reason:
            return {**row, "reason": self.reason}
        row["seeds"] = [summary["seed"] for summary in self.summaries]
        for key in NUMBERS:
            row[key], row[f"{key}_seeds_std"] = self.over_seeds(key)
        if (spent := self.by_server) is not None:
            row["flops_server"] = spent
        row["targets"] = [
            _over_seeds(targets)
            for targets in zip(*(summary["targets"] for summary in self.summaries), strict=True)
        ]
        return row


NUMBERS = (
    *("mean_accuracy", "std_accuracy", "best_accuracy", "last10_accuracy"),
    *("floats_down", "floats_up", "flops", "seconds", "best_selected_accuracy"),
    *("balanced_accuracy", "macro_f1", "auc", "majority_baseline"),
)
CLASSWISE: dict[str, Metric] = {
    "balanced": "balanced_accuracy",
    "macro F1": "macro_f1",
    "AUC": "auc",
}
"""Columns of what is measured class by class, where any run recorded it."""
OWN = "pfedes"
"""The method whose baselines the others are."""


def reference_of(results: Sequence[Result], against: str | None = None) -> Result | None:
    """The result that the others are compared with: the one asked for, or the best baseline.

    None where there is nothing to compare, or the one asked for has no result.
    """
    known = {result.method: result for result in results if not result.reason}
    if against is not None:
        return known.get(against)
    if len(known) < 2:
        return None
    baselines = [result for method, result in known.items() if method != OWN]
    return min(baselines, key=_rank)


def difference_of(result: Result, reference: Result) -> Difference:
    """How far a method is ahead of another, client by client, over all seeds."""
    ours, theirs = (
        [summary["accuracies"] for summary in each.summaries] for each in (result, reference)
    )
    return difference(ours, theirs)


def records_of(results: Sequence[Result], reference: Result | None = None) -> list[dict[str, Any]]:
    """All that is known of all methods, as numbers: what `compare.json` holds."""
    records = []
    for result in results:
        record = result.record()
        if reference is not None and not result.reason and result is not reference:
            gap = difference_of(result, reference)
            record["difference"] = {
                "against": reference.method,
                **asdict(gap),
                "verdict": gap.verdict,
            }
        records.append(record)
    return records


def results_of(outcomes: Sequence[Outcome], methods: Sequence[str]) -> list[Result]:
    """A result per method; of a grid the point that did best on validation, never on test."""
    found = []
    for method in methods:
        points: dict[Path, list[Outcome]] = {}
        for outcome in outcomes:
            if outcome.cell.config.method.name == method:
                points.setdefault(outcome.cell.directory.parent, []).append(outcome)
        results = [_result(method, group) for group in points.values()]
        found.append(max(results, key=lambda result: (not result.reason, result.validation or 0)))
    return found


def _result(method: str, outcomes: Sequence[Outcome]) -> Result:
    point = outcomes[0].cell.point
    for outcome in outcomes:
        if outcome.run is None:
            return Result(method, point, [], None, outcome.reason)
        if not outcome.run.trained:
            return Result(method, point, [], None, outcome.run.why_untrained())
    runs = [outcome.run for outcome in outcomes if outcome.run is not None]
    scores = [run.manifest.best_validation for run in runs]
    known = [score for score in scores if score is not None]
    summaries = [run.summary for run in runs]
    validation = statistics.fmean(known) if known else None
    return Result(method, point, summaries, validation, runs=runs)


def _over_seeds(targets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Costs until a target, averaged over seeds; none where a seed never reached it."""
    row: dict[str, Any] = {"accuracy": targets[0]["accuracy"]}
    for key in ("round", "floats", "flops"):
        values = [target[key] for target in targets]
        row[key] = None if None in values else statistics.fmean(values)
    return row


def table_of(
    results: Sequence[Result], targets: Sequence[float], reference: Result | None = None
) -> Table:
    """The table that people read; differences are to the reference, if there is one."""
    goals = [percent(target).replace(".00", "") for target in targets]
    server_trains = any(result.by_server is not None for result in results)
    known = [key for key in CLASSWISE.values() if any(r.over_seeds(key)[0] for r in results)]
    columns = [
        "method",
        "accuracy",
        "over clients",
        "best by val.",
        f"last {last_rounds(results)}",
        "best selected",
        *(title for title, key in CLASSWISE.items() if key in known),
        *([f"against {reference.label}", "verdict"] if reference else []),
        "floats",
        "FLOP",
        *(["server FLOP"] if server_trains else []),
        "time",
        *(f"until {goal}: {what}" for goal in goals for what in ("round", "floats", "FLOP")),
    ]
    rows = []
    for result in sorted(results, key=_rank):
        if result.reason:
            rows.append([result.label, *["-"] * (len(columns) - 1)])
            continue
        record = result.record()
        until = [
            "not reached" if what == "round" and target[what] is None else count(target[what])
            for target in record["targets"]
            for what in ("round", "floats", "flops")
        ]
        rows.append(
            [
                result.label,
                _with_spread(*result.over_seeds("mean_accuracy")),
                _points(record["std_accuracy"]),
                _percent(record["best_accuracy"]),
                _percent(record["last10_accuracy"]),
                _percent(record["best_selected_accuracy"]),
                *(_percent(record[key]) for key in known),
                *(_against(result, reference) if reference else []),
                count(record["floats_down"] + record["floats_up"]),
                count(record["flops"]),
                *([count(result.by_server or 0)] if server_trains else []),
                f"{record['seconds']:.0f} s",
                *until,
            ]
        )
    notes = [f"{r.label}: {r.reason}" for r in results if r.reason]
    for chosen in (result for result in results if result.point and not result.reason):
        keys = ", ".join(f"{key} = {value}" for key, value in chosen.point.items())
        notes.append(f"{chosen.label}: {keys}, chosen by validation")
    notes += filter(None, map(one_class_note, results))
    notes.append(BEST_SELECTED_NOTE)
    if reference is not None:
        notes.append(INTERVAL_NOTE)
    return Table(columns, rows, notes)


def one_class_note(result: Result) -> str:
    """How many models name one class only, and whose; '' if none does."""
    whose = [
        f"{name} (seed {summary['seed']})"
        for summary in result.summaries
        for name in summary.get("one_class", [])
    ]
    if not whose:
        return ""
    models = sum(summary["clients"] for summary in result.summaries)
    return (
        f"{result.label}: {len(whose):,} of {counted(models, 'model')} predict one "
        f"class only: {listed(whose, MOST_NAMED)}"
    )


def last_rounds(results: Sequence[Result]) -> int:
    """Over how many rounds the last accuracy is averaged: ten, if there were so many."""
    rounds = [summary["rounds"] for result in results for summary in result.summaries]
    return min(10, max(rounds, default=10))


BEST_SELECTED_NOTE = (
    "best selected: the best round's mean over the clients selected in it, as the authors' script "
    "measures."
)
INTERVAL_NOTE = (
    "against: the mean difference in points, client by client, with a 95 % bootstrap interval over "
    "clients, and over seeds where there are several; not decided: the interval contains 0."
)


def _against(result: Result, reference: Result) -> list[str]:
    if result is reference:
        return ["", "reference"]
    gap = difference_of(result, reference)
    return [str(gap), gap.verdict]


def _rank(result: Result) -> tuple[bool, float]:
    mean = result.over_seeds("mean_accuracy")[0]
    return mean is None, -(mean or 0)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _points(value: float) -> str:
    return f"{100 * value:.2f}"


def _with_spread(mean: float | None, spread: float | None) -> str:
    return _percent(mean) if spread is None else f"{_percent(mean)} ± {_points(spread)}"
