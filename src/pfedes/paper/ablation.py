"""How much of the gain is sharing? A question that the paper leaves open."""

from dataclasses import replace

from pfedes.paper.experiment import Exhibit, Experiment, Results
from pfedes.paper.scale import SAME_FLOP, Scale
from pfedes.paper.setting import Setting, option
from pfedes.paper.tables import SEEDS
from pfedes.report.formats import count
from pfedes.table import Table

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
    return [replace(cell, seed=seed) for seed in SEEDS]


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
    """The answer in one sentence, from the numbers."""
    mean = {name: results.accuracy(seeds(cell)).mean for name, (cell, _) in VARIANTS.items()}
    known = {name: value for name, value in mean.items() if value is not None}
    if len(known) < len(VARIANTS):
        return f"Only {len(known)} of {len(VARIANTS)} variants have been run."
    gain = known["pFedES"] - known["Standalone"]
    sharing = known["pFedES"] - max(known["pFedES, local"], known["pFedES, frozen"])
    computing = known["Standalone, same FLOP"] - known["Standalone"]
    return (
        f"pFedES is {gain:+.2f} points from Standalone with the same epochs. Of this, sharing "
        f"accounts for {sharing:+.2f} (against the better of local and frozen); Standalone given "
        f"the same computing gains {computing:+.2f}."
    )


ABLATION = Experiment(
    name="ablation",
    title="How much of the gain is sharing?",
    source="not in the paper",
    settings=wanted,
    show=show,
)
