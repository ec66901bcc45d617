"""The rows of `clients.jsonl` and `rounds.jsonl`."""

from collections.abc import Collection, Mapping, Sequence

from pfedes.core.measures import METRICS, Metric
from pfedes.core.protocol import MEMBER_META, WITHHELD
from pfedes.core.scores import Scores
from pfedes.federation.admission import Verdict
from pfedes.results.summary import (
    COUNTERS,
    Row,
    mean_accuracy,
    mean_by,
    mean_validation,
    total,
)
from pfedes.store.manifest import Standing, scores_of


def client_row(verdict: Verdict, metric: Metric = "accuracy") -> Row:
    """The row of one client in one round. Of unchecked replies it has only the costs."""
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
    if verdict.code is not None:
        row["code"] = verdict.code
    if reply is not None and verdict.status == "ok":
        meta, scores = reply.payload.meta, reply.scores
        row |= {
            "n": meta.get("samples"),
            **({} if scores is None else _accuracies(scores)),
            **dict.fromkeys(WITHHELD),
            **{key: value for key, value in meta.items() if key not in BOOKKEEPING},
            **({} if metric == "accuracy" or scores is None else _measured(scores, metric)),
        }
    return row


def _accuracies(scores: Scores) -> Row:
    return {"accuracy": scores.accuracy, "val_accuracy": scores.val_accuracy}


def _measured(scores: Scores, metric: Metric) -> Row:
    """Further fields of rows if the accuracy does not choose the best round."""
    return {
        "val_metric": scores.val_by(metric),
        **{name: scores.by(name) for name in METRICS if name != "accuracy"},
    }


BOOKKEEPING = {
    *("run", "round", "base", "samples", "state"),
    *("val_correct", "val_total", "test_correct", "test_total"),
    *MEMBER_META,
}


def round_row(
    round: int,
    status: str,
    selected: int,
    clients: Sequence[Row],
    standings: Mapping[str, Standing],
    floats_evaluation: int,
    flops_server: int,
    seconds: float,
    metric: Metric = "accuracy",
) -> Row:
    """The round in one row: sums over the asked clients, means over all.

    Only rows of rounds in which the server trained say what it computed.
    """
    scores = scores_of(standings)
    local = [standing.local for standing in standings.values() if standing.local is not None]
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
            mean_accuracy(scores[row["client"]] for row in accepted if row["client"] in scores)
        ),
        "accuracy_local": mean_accuracy(local),
        "val_accuracy": mean_validation(scores.values()),
        **({} if metric == "accuracy" else _means(scores.values(), metric)),
        "loss": _mean_loss(accepted),
        **counted,
        "floats_evaluation": floats_evaluation,
        "flops": total(row["flops"] for row in clients),
        **({"flops_server": flops_server} if flops_server else {}),
        "seconds": seconds,
    }


def _mean_loss(rows: Sequence[Row]) -> float | None:
    """The mean loss, weighted by samples; None if clients send neither."""
    if not rows or rows[0]["loss"] is None:
        return None
    loss: float = sum(row["loss"] * row["n"] for row in rows) / sum(row["n"] for row in rows)
    return loss


def _means(scores: Collection[Scores], metric: Metric) -> Row:
    return {
        "val_metric": mean_validation(scores, metric),
        **{name: mean_by(name, scores) for name in METRICS if name != "accuracy"},
    }
