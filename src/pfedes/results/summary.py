"""The result of a run as one object, and the means it is made of."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pfedes.core.flops import by_server
from pfedes.core.measures import METRICS, Metric, mean_of
from pfedes.core.precision import Precision
from pfedes.core.scores import Scores
from pfedes.store.manifest import Manifest, Standing


def total(numbers: Iterable[int | None]) -> int | None:
    """Their sum; None if one of them was withheld."""
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)


def until(accuracy: float, rounds: Sequence[Mapping[str, Any]]) -> dict[str, float | int | None]:
    """The first round that reaches an accuracy, with the floats and FLOPs spent until then."""
    for number, row in enumerate(rounds, 1):
        if row["accuracy"] is not None and row["accuracy"] >= accuracy:
            so_far = rounds[:number]
            return {
                "accuracy": accuracy,
                "round": row["round"],
                "floats": sum(each["floats_down"] + each["floats_up"] for each in so_far),
                "flops": total(each["flops"] for each in so_far),
                **by_server(so_far),
            }
    return {"accuracy": accuracy, "round": None, "floats": None, "flops": None}


Row = dict[str, Any]
COUNTERS = ("floats_down", "floats_up", "bytes_down", "bytes_up", "metadata_down", "metadata_up")


def mean_accuracy(scores: Iterable[Scores]) -> float | None:
    """The unweighted mean over clients; None if no scores are known."""
    return _mean([score.accuracy for score in scores])


def worst_first(manifest: Manifest) -> list[tuple[str, Standing]]:
    """All clients by accuracy; by name if no scores are known."""

    def key(item: tuple[str, Standing]) -> tuple[float, str]:
        name, standing = item
        return (standing.scores.accuracy if standing.scores is not None else 0.0), name

    return sorted(manifest.clients.items(), key=key)


def mean_by(metric: Metric, scores: Iterable[Scores]) -> float | None:
    """A metric on test samples: the unweighted mean over the clients that have it."""
    return _mean([value for score in scores if (value := score.by(metric)) is not None])


def mean_validation(scores: Iterable[Scores], metric: Metric = "accuracy") -> float | None:
    """Unweighted over the clients that have validation samples of which it is known."""
    return _mean([value for score in scores if (value := score.val_by(metric)) is not None])


def _mean(known: Sequence[float]) -> float | None:
    return statistics.fmean(known) if known else None


def summarise(
    *,
    method: str,
    dataset: str,
    seed: int,
    precision: Precision,
    targets: Sequence[float],
    manifest: Manifest,
    rounds: Sequence[Row],
    clients: Sequence[Row],
) -> Row:
    """The result of a run. Accuracies are fractions. float32 goes without saying."""
    scores = [score for _, score in sorted(manifest.scores.items())]
    accuracies = [score.accuracy for score in scores]
    best = next((row for row in rounds if row["round"] == manifest.best_round), None)
    last10 = [row["accuracy"] for row in rounds[-10:] if row["accuracy"] is not None]

    def events(status: str) -> list[Row]:
        return [
            {key: row[key] for key in ("client", "round", "reason", "code") if key in row}
            for row in clients
            if row["status"] == status
        ]

    return {
        "method": method,
        "dataset": dataset,
        "clients": len(manifest.clients),
        "rounds": manifest.round,
        "seed": seed,
        "mean_accuracy": _mean(accuracies),
        "std_accuracy": statistics.pstdev(accuracies) if accuracies else None,
        "accuracies": accuracies,
        "best_round": manifest.best_round,
        "best_accuracy": best["accuracy"] if best else None,
        "last10_accuracy": _mean(last10),
        "initial_accuracy": manifest.initial_accuracy,
        **{name: sum(row[name] for row in rounds) for name in COUNTERS},
        "floats_evaluation": sum(row["floats_evaluation"] for row in rounds),
        "flops": total(row["flops"] for row in rounds),
        **by_server(rounds),
        "seconds": sum(row["seconds"] for row in rounds),
        "targets": [until(target, rounds) for target in targets],
        "rejected_uploads": events("rejected"),
        "failed_clients": events("failed"),
        **measured(scores),
        "one_class": sorted(
            name
            for name, score in manifest.scores.items()
            if (tally := score.test) is not None and tally.only_class is not None
        ),
        **dict(zip(BEST_SELECTED, best_selected(rounds, clients), strict=True)),
        **({} if precision == "float32" else {"precision": precision}),
    }


def measured(scores: Sequence[Scores]) -> dict[str, float | None]:
    """Means over clients of what is known class by class; None where it is known of none."""
    tallies = [score.test for score in scores]
    return {
        **{name: mean_by(name, scores) for name in METRICS if name != "accuracy"},
        "majority_baseline": mean_of(tallies, lambda tally: tally.baseline),
    }


BEST_SELECTED = ("best_selected_round", "best_selected_accuracy")


def best_selected(
    rounds: Iterable[Row], clients: Iterable[Row]
) -> tuple[int, float] | tuple[None, None]:
    """The result by the rule of the authors' script: the best round, and its accuracy.

    Of a round it takes the mean test accuracy, right after local training, of the clients that were
    selected. The largest of these means counts. It is chosen by test, and of few clients.
    """
    valid = {row["round"] for row in rounds if row["status"] == "ok"}
    scores: dict[int, list[float]] = {}
    for row in clients:
        if row["status"] == "ok" and row["round"] in valid and row["accuracy"] is not None:
            scores.setdefault(row["round"], []).append(row["accuracy"])
    means = [(statistics.fmean(values), -number) for number, values in scores.items()]
    if not means:
        return None, None
    accuracy, number = max(means)  # the first of equal ones
    return -number, accuracy
