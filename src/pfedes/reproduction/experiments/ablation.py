"""How much of the gain is sharing? A question that the paper leaves open."""

import statistics

from pfedes.formatting import count
from pfedes.reproduction.experiment import Exhibit, Experiment, Results
from pfedes.reproduction.experiments.tables import SEEDS
from pfedes.reproduction.scale import SAME_FLOP, Scale
from pfedes.reproduction.scenario import Setting, option
from pfedes.results.table import Table

VARIANTS = {
    "pFedES": (Setting("pfedes"), "the method"),
    "pFedES, local": (
        Setting("pfedes", options=option(sharing="local")),
        "every client trains an extractor of its own; nothing travels",
    ),
    "pFedES, frozen": (
        Setting("pfedes", options=option(sharing="frozen")),
        "the common random extractor, never trained",
    ),
    "Standalone": (Setting("standalone"), "no extractor, as many epochs"),
    "Standalone, same FLOP": (
        Setting("standalone", options=(("train.epochs", SAME_FLOP),)),
        "no extractor, as much computing",
    ),
}


def seeds(cell: Setting) -> list[Setting]:
    return [cell.with_seed(seed) for seed in SEEDS]


def wanted(scale: Scale) -> list[Setting]:
    return [one for cell, _ in VARIANTS.values() for one in seeds(cell)]


def show(results: Results) -> Exhibit:
    """Accuracy and cost of each variant, seed by seed against pFedES."""
    rows = []
    reference = results.records(seeds(VARIANTS["pFedES"][0]))
    for name, (cell, about) in VARIANTS.items():
        records = results.records(seeds(cell))
        accuracy = results.accuracy(seeds(cell))
        paired = [
            100 * (other.accuracy - record.accuracy)
            for other in reference
            for record in records
            if other.config.seed == record.config.seed
        ]
        rows.append(
            [
                name,
                about,
                str(accuracy),
                " ".join(f"{value:.2f}" for value in accuracy.seeds),
                " ".join(f"{value:+.2f}" for value in paired),
                count(sum(r.summary["flops"] for r in records) / len(records)) if records else "",
                count(sum(r.summary["floats_up"] for r in records) / len(records))
                if records
                else "",
            ]
        )
    columns = ["variant", "what it is", "accuracy (%)", "by seed", "pFedES is ahead by"]
    columns += ["FLOP", "floats sent up"]
    notes = [
        "Heterogeneous models, CIFAR-10, N=100, C=10 %, seeds 0, 1, 2; ± is the standard "
        "deviation over seeds.",
        verdict(results),
    ]
    return Exhibit({"ablation": Table(columns, rows)}, notes=notes)


def verdict(results: Results) -> str:
    """The answer in one sentence, from the seeds with which every variant has been run."""
    found = {
        name: {record.config.seed: 100 * record.accuracy for record in results.records(seeds(cell))}
        for name, (cell, _) in VARIANTS.items()
    }
    common = set.intersection(*(set(by_seed) for by_seed in found.values()))
    if not common:
        run = sum(map(bool, found.values()))
        return f"Only {run} of {len(VARIANTS)} variants have been run."
    known = {
        name: statistics.fmean(by_seed[seed] for seed in common) for name, by_seed in found.items()
    }
    gain = known["pFedES"] - known["Standalone"]
    sharing = known["pFedES"] - max(known["pFedES, local"], known["pFedES, frozen"])
    computing = known["Standalone, same FLOP"] - known["Standalone"]
    return (
        f"pFedES is {abs(gain):.2f} points {'ahead of' if gain >= 0 else 'behind'} Standalone with "
        f"as many epochs. Sharing makes {sharing:+.2f} of difference (to the better of local and "
        f"frozen); as much computing as pFedES makes {computing:+.2f} for Standalone."
    )


ABLATION = Experiment(
    name="ablation",
    title="How much of the gain is sharing?",
    source="Not in the paper",
    settings=wanted,
    show=show,
)
