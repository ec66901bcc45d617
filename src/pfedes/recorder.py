"""Metrics as rows, and the result of a run as one object."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from pfedes.admission import Verdict, scores_of
from pfedes.client import Scores
from pfedes.costs import until
from pfedes.manifest import Manifest, Standing
from pfedes.section import Section

Row = dict[str, Any]
COUNTERS = ("floats_down", "floats_up", "bytes_down", "bytes_up", "metadata_down", "metadata_up")


class EvaluateConfig(Section):
    """What is reported."""

    after_aggregation: bool = Field(
        False, description="measure all clients after aggregation (LG-FedAvg differs then)"
    )
    targets: tuple[Annotated[float, Field(gt=0, le=1)], ...] = Field(
        (0.9,), description="accuracies whose costs are reported when they are first reached"
    )


def mean_accuracy(scores: Iterable[Scores]) -> float:
    """Unweighted over clients."""
    return statistics.fmean(score.accuracy for score in scores)


def mean_validation(scores: Iterable[Scores]) -> float | None:
    """Unweighted over the clients that have validation samples."""
    known = [value for score in scores if (value := score.val_accuracy) is not None]
    return statistics.fmean(known) if known else None


def client_row(verdict: Verdict) -> Row:
    """What one client did in one round. Unchecked replies give nothing but what they cost."""
    task, reply = verdict.task, verdict.reply
    row: Row = {
        "round": task.round,
        "client": task.client,
        "status": verdict.status,
        "reason": verdict.reason,
        "n": None,
        "accuracy": None,
        "val_accuracy": None,
        "loss": None,
        "floats_down": task.download.floats,
        "floats_up": reply.payload.floats if reply else 0,
        "bytes_down": task.download.bytes,
        "bytes_up": reply.payload.bytes if reply else 0,
        "metadata_down": task.metadata if verdict.asked else 0,
        "metadata_up": reply.payload.metadata if reply else 0,
        "flops": 0,
        "seconds": 0.0,
    }
    if reply is not None and verdict.status == "ok":
        meta, scores = reply.payload.meta, scores_of(reply.payload)
        row |= {
            "n": meta["samples"],
            "accuracy": scores.accuracy,
            "val_accuracy": scores.val_accuracy,
            **{key: value for key, value in meta.items() if key not in BOOKKEEPING},
        }
    return row


BOOKKEEPING = {
    *("run", "round", "base", "samples", "state"),
    *("val_correct", "val_total", "test_correct", "test_total"),
}


def round_row(
    round: int,
    status: str,
    selected: int,
    clients: Sequence[Row],
    standings: Mapping[str, Standing],
    floats_evaluation: int,
    seconds: float,
) -> Row:
    """The round in one row: sums over the asked clients, means over all."""
    scores = {name: standing.scores for name, standing in standings.items()}
    local = [standing.local for standing in standings.values()]
    ok = [row for row in clients if row["status"] == "ok"]
    accepted = ok if status == "ok" else []
    counted = {name: sum(row[name] for row in clients) for name in COUNTERS}
    return {
        "round": round,
        "status": status,
        "selected": selected,
        "answered": len(ok),
        "rejected": sum(row["status"] == "rejected" for row in clients),
        "failed": sum(row["status"] == "failed" for row in clients),
        "accuracy": mean_accuracy(scores.values()),
        "accuracy_selected": (
            mean_accuracy(scores[row["client"]] for row in accepted) if accepted else None
        ),
        "accuracy_local": mean_accuracy(local),
        "val_accuracy": mean_validation(scores.values()),
        "loss": (
            sum(row["loss"] * row["n"] for row in accepted) / sum(row["n"] for row in accepted)
            if accepted
            else None
        ),
        **counted,
        "floats_evaluation": floats_evaluation,
        "flops": sum(row["flops"] for row in clients),
        "seconds": seconds,
    }


def summarise(
    *,
    method: str,
    dataset: str,
    seed: int,
    targets: Sequence[float],
    manifest: Manifest,
    rounds: Sequence[Row],
    clients: Sequence[Row],
) -> Row:
    """The result of a run. Accuracies are fractions."""
    standings = [manifest.clients[name] for name in sorted(manifest.clients)]
    accuracies = [standing.scores.accuracy for standing in standings]
    best = next((row for row in rounds if row["round"] == manifest.best_round), None)
    last10 = [row["accuracy"] for row in rounds[-10:]]

    def events(status: str) -> list[Row]:
        return [
            {"client": row["client"], "round": row["round"], "reason": row["reason"]}
            for row in clients
            if row["status"] == status
        ]

    return {
        "method": method,
        "dataset": dataset,
        "clients": len(accuracies),
        "rounds": manifest.round,
        "seed": seed,
        "mean_accuracy": statistics.fmean(accuracies),
        "std_accuracy": statistics.pstdev(accuracies),
        "accuracies": accuracies,
        "best_round": manifest.best_round,
        "best_accuracy": best["accuracy"] if best else None,
        "last10_accuracy": statistics.fmean(last10) if last10 else None,
        "initial_accuracy": manifest.initial_accuracy,
        **{name: sum(row[name] for row in rounds) for name in COUNTERS},
        "floats_evaluation": sum(row["floats_evaluation"] for row in rounds),
        "flops": sum(row["flops"] for row in rounds),
        "seconds": sum(row["seconds"] for row in rounds),
        "targets": [until(target, rounds) for target in targets],
        "rejected_uploads": events("rejected"),
        "failed_clients": events("failed"),
    }
