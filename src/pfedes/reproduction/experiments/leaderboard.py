"""Every method on equal terms: the baselines of the paper, and newer ones."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from pfedes.formatting import count
from pfedes.reproduction.experiment import NOT_RUN, Exhibit, Experiment, Results
from pfedes.reproduction.experiments.tables import SEEDS, setting
from pfedes.reproduction.record import RULE, Record, paired
from pfedes.reproduction.scale import Scale
from pfedes.reproduction.scenario import DATA, LISTED, Setting, name_in_print
from pfedes.results.table import Table

CLIENTS = 100
SEVERAL = ("fedmrl", "fedssa", "fedproto", "fd", "fedkd", "pfedes", "standalone")
"""Run with three seeds on CIFAR-10: the best five with seed 0, pFedES and Standalone."""


def cell(method: str, data: str) -> Setting:
    return setting(method, data, CLIENTS, homogeneous=False)


def seeds_of(method: str, data: str) -> list[Setting]:
    several = data == "cifar10" and method in SEVERAL
    return [cell(method, data).with_seed(seed) for seed in (SEEDS if several else SEEDS[:1])]


def wanted(scale: Scale) -> list[Setting]:
    methods = scale.compared(LISTED)
    first = [cell(method, data) for data in DATA for method in methods]
    again = [method for method in SEVERAL if method in methods]
    return first + [one for method in again for one in seeds_of(method, "cifar10")[1:]]


def show(results: Results) -> Exhibit:
    """A table per data set, the best method first."""
    notes = [
        "Heterogeneous models (CNN-1 to CNN-5 at random), N=100, C=10 %; every method has the same "
        "partition, selections and initial weights. Where there are seeds 0, 1, 2, ± is the "
        "standard deviation over them; elsewhere seed 0.",
        "accuracy: mean over all clients after the last round. best selected: by the rule of the "
        "authors' script, the best round's mean over the clients selected in it.",
        "against Standalone: the mean difference in points over the seeds that both have, client "
        "by client, with a 95 % bootstrap interval; not decided: the interval contains 0.",
        "floats: sent and received by all clients together. FLOP: of training, at clients and "
        "server. Means over seeds.",
        RULE,
    ]
    return Exhibit({data: _table(results, data) for data in DATA}, notes=notes)


def _table(results: Results, data: str) -> Table:
    known = {
        method: results.records(seeds_of(method, data)) for method in results.scale.compared(LISTED)
    }
    ranked = sorted(known, key=lambda method: _rank(known[method]))
    rows = [_row(results, method, data, known) for method in ranked if known[method]]
    missing = [name_in_print(method) for method in ranked if not known[method]]
    columns = ["method", "accuracy (%)", "seeds", "best selected (%)", "against Standalone"]
    columns += ["verdict", "floats", "FLOP", "of which the server"]
    return Table(columns, rows, [f"{NOT_RUN}: {', '.join(missing)}."] if missing else [])


def _row(
    results: Results, method: str, data: str, known: Mapping[str, Sequence[Record]]
) -> list[str]:
    records = known[method]
    selected = [value for record in records if (value := record.best_selected) is not None]
    gap = paired(records, known.get("standalone", [])) if method != "standalone" else None
    return [
        name_in_print(method),
        str(results.accuracy(seeds_of(method, data))),
        str(len(records)),
        f"{100 * fmean(selected):.2f}" if selected else "-",
        str(gap) if gap else "",
        gap.verdict if gap else "reference" if method == "standalone" else "",
        count(fmean(r.summary["floats_up"] + r.summary["floats_down"] for r in records)),
        count(fmean(r.summary["flops"] + r.summary.get("flops_server", 0) for r in records)),
        count(fmean(r.summary.get("flops_server", 0) for r in records)),
    ]


def _rank(records: Sequence[Record]) -> float:
    return -fmean(record.accuracy for record in records) if records else 0.0


LEADERBOARD = Experiment(
    name="leaderboard",
    title="All methods on equal terms",
    source="Not in the paper",
    settings=wanted,
    show=show,
    compares=True,
)
