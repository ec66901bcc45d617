"""What is left of a finished run when its states are gone: configuration, result and rows."""

import gzip
import json
import re
import statistics
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pfedes.config import Config, stored_config, with_method_imported
from pfedes.errors import DamageError
from pfedes.files import parse_json, publish, read, writing
from pfedes.formatting import counted
from pfedes.population.base import client_names
from pfedes.results.paired import Difference, difference
from pfedes.results.summary import Row, best_selected

KEPT = ("config.toml", "summary.json")
ROUNDS, CLIENTS = "rounds.jsonl", "clients.jsonl"
PACKED = ".gz"
"""Rows are packed in an archive. Rounds were not always: both are read."""


@dataclass(frozen=True)
class Record:
    """A finished run as its files tell it; a run directory has them, and an archive."""

    directory: Path
    config: Config
    summary: Row
    rounds: list[Row]

    @classmethod
    def of(cls, directory: Path, wanted: Config) -> "Record | None":
        """The record in a directory; None where no such run is finished there."""
        if not all((directory / name).is_file() for name in KEPT):
            return None
        if not any((directory / name).is_file() for name in (ROUNDS, ROUNDS + PACKED)):
            return None
        config = stored_config(directory / "config.toml")
        if config.method.name == wanted.method.name:
            config = with_method_imported(config)  # as the user's wish has been already
        if config.result_digest() != wanted.result_digest():
            return None  # a default has changed since
        summary = parse_json(path := directory / "summary.json", read(path))
        rounds = list(_rows(directory, ROUNDS))
        try:
            if summary["rounds"] < config.train.rounds or len(rounds) < summary["rounds"]:
                return None
        except (KeyError, TypeError):
            raise DamageError(f"{path} is not a summary") from None
        return cls(directory, config, summary, rounds)

    @property
    def accuracy(self) -> float:
        """Mean test accuracy over all clients after the last round."""
        return float(self.summary["mean_accuracy"])

    @property
    def validation(self) -> float:
        """After the last round, as the accuracy: what a grid is judged by."""
        return float(self.rounds[-1]["val_accuracy"] or 0.0)

    @property
    def usual_seconds(self) -> float:
        """The median round's: a machine may have slept during one, or been busy with others."""
        return float(statistics.median(row["seconds"] for row in self.rounds))

    @cached_property
    def learned(self) -> list[float]:
        """The accuracies of those clients that were ever selected: the rest is as it began."""
        learned = {row["client"] for row in _rows(self.directory, CLIENTS) if row["status"] == "ok"}
        accuracies = self.summary["accuracies"]
        names = sorted(client_names(len(accuracies)))  # a summary's order
        return [value for name, value in zip(names, accuracies, strict=True) if name in learned]

    @cached_property
    def best_selected(self) -> float | None:
        """The result by the rule of the authors' script, also of runs that have none in theirs."""
        return best_selected(self.rounds, _rows(self.directory, CLIENTS))[1]

    @property
    def diverged(self) -> int:
        """How many answers were lost to a loss that was no longer finite."""
        return sum(map(_is_not_finite, self.summary["failed_clients"]))

    def archive(self, directory: Path) -> None:
        """Copies the record, and what was measured on its run, without any state.

        What makes it a record comes last: one that was interrupted is none.
        """
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
        for name in (CLIENTS, ROUNDS):
            packed = self.directory / f"{name}{PACKED}"
            rows = read(packed) if packed.is_file() else _packed(read(self.directory / name))
            publish(directory / packed.name, rows)
        measured = {path.name for path in self.directory.glob("*.json")}
        for name in (*sorted(measured.difference(KEPT)), *KEPT):
            content = read(self.directory / name)
            if name == "config.toml":
                # Where the data lay means nothing elsewhere, and identifies no run.
                content = re.sub(rb"(?m)^dir = .*$", b'dir = ""', content)
            if name == "environment.json":
                # The command holds paths that mean nothing elsewhere.
                facts = parse_json(self.directory / name, content)
                kept = {key: value for key, value in facts.items() if key != "command"}
                content = json.dumps(kept, indent=2).encode()
            publish(directory / name, content)


def _is_not_finite(event: Row) -> bool:
    if "code" in event:
        return bool(event["code"] == "not finite")
    return "no longer finite" in event["reason"]  # records from before there were codes


def _packed(rows: bytes) -> bytes:
    return gzip.compress(rows, mtime=0)  # the same rows, the same file


def _rows(directory: Path, name: str) -> Iterator[Any]:
    """The rows of a file of a run, packed or not."""
    path = directory / f"{name}{PACKED}"
    if not path.is_file():
        path = directory / name
        content = read(path)
    else:
        try:
            content = gzip.decompress(read(path))
        except (OSError, EOFError, zlib.error):
            raise DamageError(f"{path} is damaged") from None
    for line in content.splitlines():
        yield parse_json(path, line)


def not_converged(record: Record) -> str | None:
    """Why a run counts as not converged, printed as '-' like in the paper; None if it did."""
    accuracies = [row["accuracy"] for row in record.rounds]
    start, last = record.summary["initial_accuracy"], record.summary["last10_accuracy"]
    if record.diverged:
        return f"the loss was no longer finite in {counted(record.diverged, 'answer')}"
    if max(accuracies) < start + LEAST_GAIN:
        return f"never {100 * LEAST_GAIN:.0f} points above the untrained models"
    if last < max(accuracies) / 2:
        return "its last ten rounds are worse than half of its best one"
    return None


def paired(ours: Sequence[Record], theirs: Sequence[Record]) -> Difference | None:
    """How far one method is ahead of another over the seeds that both have; None if none."""
    others = {record.config.seed: record for record in theirs}
    pairs = [(one, others[one.config.seed]) for one in ours if one.config.seed in others]
    if not pairs:
        return None
    return difference(
        [one.summary["accuracies"] for one, _ in pairs],
        [other.summary["accuracies"] for _, other in pairs],
    )


LEAST_GAIN = 0.05
RULE = (
    "'-' means not converged: a client's loss was no longer finite, or no round was "
    f"{100 * LEAST_GAIN:.0f} points better than the untrained models, or the mean of the last ten "
    "rounds is below half of the best round."
)
