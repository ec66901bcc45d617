"""What two errors in public code do to the numbers that it gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pfedes.formatting import count, counted
from pfedes.reproduction.experiment import NOT_RUN, Exhibit, Experiment, Results
from pfedes.reproduction.experiments.tables import SEEDS
from pfedes.reproduction.record import Record, paired
from pfedes.reproduction.scale import Scale
from pfedes.reproduction.scenario import Setting, name_in_print, option
from pfedes.results.table import Table

CLIENTS = 20


@dataclass(frozen=True)
class Pair:
    """A method as it is specified, and as public code has it."""

    method: str
    specified: str
    found: str
    options: Mapping[str, Any]
    """What makes the method that of the public code."""

    def settings(self, *, specified: bool) -> list[Setting]:
        """One for each seed."""
        options = option(**({} if specified else self.options))
        cell = Setting(self.method, clients=CLIENTS, participation=1.0, options=options)
        return [cell.with_seed(seed) for seed in SEEDS]


PAIRS = (
    Pair(
        "fedgh",
        "the server trains the head",
        "frozen: the head stays as it was drawn (the authors' scripts)",
        {"server_lr": 0.0},
    ),
    Pair(
        "fedmrl",
        "clients keep their projector",
        "random: what the projector learned is lost after a round (HtFLlib)",
        {"projector": "random"},
    ),
)


def wanted(_: Scale) -> list[Setting]:
    """All of one seed before the next: the first tell most."""
    settings = [pair.settings(specified=each) for pair in PAIRS for each in (True, False)]
    return sorted((one for group in settings for one in group), key=lambda one: one.seed)


def show(results: Results) -> Exhibit:
    """Two rows for each method; what the error costs stands in the second."""
    rows, missing = [], 0
    for pair in PAIRS:
        known = {each: results.records(pair.settings(specified=each)) for each in (True, False)}
        for each, about in ((True, pair.specified), (False, pair.found)):
            rows.append(_row(results, pair, about, known, specified=each))
            missing += len(SEEDS) - len(known[each])
    (config,) = results.scale.configs(PAIRS[0].settings(specified=True)[0])
    train = config.train
    notes = [
        f"Heterogeneous models (CNN-1 to CNN-5 at random), CIFAR-10, N={CLIENTS}, C=100 %, "
        f"{counted(train.rounds, 'round')} of E={train.epochs}, B={train.batch_size}; "
        "seeds 0, 1, 2; ± is the standard deviation over them.",
        "Difference: of the method as public code has it to the method as specified, in points, "
        "client by client over the seeds that both have, with a 95 % bootstrap interval; not "
        "decided: the interval contains 0.",
    ]
    if missing:
        notes.append(f"{missing} of {len(wanted(results.scale))} runs: {NOT_RUN}.")
    columns = ["method", "variant", "accuracy (%)", "by seed", "difference", "verdict", "FLOP"]
    return Exhibit({"public-code": Table(columns, rows)}, notes=notes)


def _row(
    results: Results,
    pair: Pair,
    about: str,
    known: Mapping[bool, list[Record]],
    *,
    specified: bool,
) -> list[str]:
    records = known[specified]
    gap = None if specified else paired(records, known[True])
    accuracy = results.accuracy(pair.settings(specified=specified), judged=False)
    flop = [r.summary["flops"] + r.summary.get("flops_server", 0) for r in records]
    return [
        name_in_print(pair.method),
        about,
        str(accuracy),
        " ".join(f"{value:.2f}" for value in accuracy.seeds),
        str(gap) if gap else "",
        "reference" if specified else gap.verdict if gap else "",
        count(fmean(flop)) if flop else "",
    ]


PUBLIC_CODE = Experiment(
    name="public-code",
    title="What two errors in public code do to a result",
    source="Not in the paper",
    settings=wanted,
    show=show,
)
