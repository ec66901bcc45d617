"""Every claim of the paper, confirmed by our runs or not, with the number."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pfedes.models import build_model
from pfedes.models.extractor import Extractor
from pfedes.paper import sweeps
from pfedes.paper.experiment import Exhibit, Experiment, Results
from pfedes.paper.models import SHAPE, parameters
from pfedes.paper.published import published
from pfedes.paper.record import Record
from pfedes.paper.scale import Scale
from pfedes.paper.setting import COMPARED, DATA, NAMES, SCENARIOS, Setting
from pfedes.paper.sweeps import Axis
from pfedes.paper.tables import seeds_of, setting, wanted
from pfedes.paper.tradeoff import common_target, races
from pfedes.table import Table

BASELINES = tuple(method for method in COMPARED if method != "pfedes")


@dataclass(frozen=True)
class Claim:
    """What the paper says, what we found, and whether that agrees; None where runs are missing."""

    says: str
    found: str
    agrees: bool | None

    def row(self) -> list[str]:
        verdict = {True: "confirmed", False: "not confirmed", None: "not run"}[self.agrees]
        return [self.says, verdict, self.found]


def claims(results: Results) -> Iterator[Claim]:
    """In the order of the paper."""
    for homogeneous in (True, False):
        yield ahead(results, homogeneous=homogeneous)
    for what, unit in (("floats", "communication"), ("flops", "computation")):
        yield cheaper(results, what, unit)
    for what, unit in MEASURES.items():
        yield faster(results, what, unit)
    yield even(results)
    yield falling(results, sweeps.MU)
    yield falling(results, sweeps.EXTRACTOR_EPOCHS)
    for axis in (sweeps.NON_IID, sweeps.PARTICIPATION):
        yield falling(results, axis)
        yield above(results, axis)
    yield smaller_than_fedavg()


def ahead(results: Results, *, homogeneous: bool) -> Claim:
    kind = "homogeneous" if homogeneous else "heterogeneous"
    most = published("Section 6.2", "gain over the best baseline", kind)
    says = f"more accurate than every baseline with {kind} models, by up to {most:.2f} points"
    leads = {}
    for data in DATA:
        for clients in SCENARIOS:
            means = {
                method: results.accuracy(
                    seeds_of(setting(method, data, clients, homogeneous=homogeneous))
                ).mean
                for method in COMPARED
            }
            ours = means.pop("pfedes")
            known = [mean for mean in means.values() if mean is not None]
            if ours is not None and known:
                leads[data, clients] = ours - max(known)
    if not leads:
        return Claim(says, "", None)
    wins = sum(lead > 0 for lead in leads.values())
    listed = ", ".join(f"{DATA[d]} N={n} {lead:+.2f}" for (d, n), lead in leads.items())
    found = f"ahead in {wins} of {len(leads)}; points ahead of the best baseline: {listed}"
    return Claim(says, found, wins == len(leads))


def cheaper(results: Results, what: str, unit: str) -> Claim:
    theirs = published("Section 6.2", f"{unit} until the target", "FedProto / pFedES")
    says = f"1/{theirs:g} of FedProto's {unit} until the target"
    ratios = [(race, ratio) for race in races(results) if (ratio := race.ratio(what)) is not None]
    if not ratios:
        return Claim(says, "", None)
    listed = ", ".join(
        f"{DATA[race.data]} N={race.clients} 1/{ratio:.2f} (to {race.target:.0%})"
        for race, ratio in ratios
    )
    return Claim(says, listed, max(ratio for _, ratio in ratios) >= (theirs or 0))


MEASURES = {"round": "rounds", "seconds": "seconds", "floats": "floats", "flops": "FLOP"}


def faster(results: Results, what: str, unit: str) -> Claim:
    """Against each baseline in each scenario, to the highest 5 % step that both reach."""
    says = f"converges faster, counted in {unit}"
    wins, all_races = 0, 0
    for data in DATA:
        for clients in SCENARIOS:
            ours = results.record(setting("pfedes", data, clients, homogeneous=False))
            for method in BASELINES:
                theirs = results.record(setting(method, data, clients, homogeneous=False))
                if ours is None or theirs is None:
                    continue
                target = common_target(1.0, [ours, theirs])
                if target is not None:
                    all_races += 1
                    wins += spent(ours, target, what) < spent(theirs, target, what)
    if not all_races:
        return Claim(says, "", None)
    found = f"first in {wins} of {all_races} races against a baseline"
    return Claim(says, found, wins == all_races)


def spent(record: Record, target: float, what: str) -> float:
    """What a run took until it first reached an accuracy that it reaches."""
    total = 0.0
    for row in record.rounds:
        counted = {**row, "round": 1, "floats": row["floats_down"] + row["floats_up"]}
        total += counted[what]
        if row["accuracy"] >= target:
            break
    return total


def even(results: Results) -> Claim:
    says = "spreads less over clients than the best baseline, under most settings"
    wins, seen = 0, []
    for data in DATA:
        for clients in SCENARIOS:
            records = {
                method: record
                for method in COMPARED
                if (record := results.record(setting(method, data, clients, homogeneous=False)))
            }
            ours = records.pop("pfedes", None)
            if ours is None or not records:
                continue
            best = max(records, key=lambda method: records[method].accuracy)
            theirs = 100 * records[best].summary["std_accuracy"]
            own = 100 * ours.summary["std_accuracy"]
            wins += own < theirs
            seen.append(f"{DATA[data]} N={clients} {own:.2f} ({NAMES[best]} {theirs:.2f})")
    if not seen:
        return Claim(says, "", None)
    return Claim(says, f"less in {wins} of {len(seen)}: {', '.join(seen)}", 2 * wins > len(seen))


def falling(results: Results, axis: Axis) -> Claim:
    says = f"accuracy falls as {axis.symbol} grows"
    return _about_axis(results, axis, says, lambda ours, _: ours[-1] < ours[0])


def above(results: Results, axis: Axis) -> Claim:
    says = f"above FedProto at every {axis.symbol}"

    def better(ours: Sequence[float], theirs: Sequence[float]) -> bool:
        return bool(theirs) and all(a > b for a, b in zip(ours, theirs, strict=True))

    return _about_axis(results, axis, says, better)


def _about_axis(
    results: Results,
    axis: Axis,
    says: str,
    holds: Callable[[Sequence[float], Sequence[float]], bool],
) -> Claim:
    verdicts, parts = [], []
    for data, values in axis.values.items():
        lines = {
            method: list(axis.accuracies(results, method, data).values()) for method in axis.methods
        }
        if any(len(line) < len(values) for line in lines.values()):
            continue
        verdicts.append(holds(lines["pfedes"], lines.get("fedproto", [])))
        shown = " ".join(f"{value:.1f}" for value in lines["pfedes"])
        if "fedproto" in lines:
            shown += " against " + " ".join(f"{value:.1f}" for value in lines["fedproto"])
        parts.append(f"{DATA[data]}: {shown}")
    agrees = all(verdicts) if len(verdicts) == len(axis.values) else None
    return Claim(says, "; ".join(parts), agrees)


def smaller_than_fedavg() -> Claim:
    extractor = parameters(Extractor(SHAPE[0], 8, "relu"))
    model = parameters(build_model("cnn1", 10, SHAPE))
    found = f"{extractor:,} floats each way against {model:,} of CNN-1: 1/{model / extractor:,.0f}"
    return Claim("sends far less than FedAvg, which sends whole models", found, extractor < model)


def needed(scale: Scale) -> list[Setting]:
    axes = (sweeps.MU, sweeps.EXTRACTOR_EPOCHS, sweeps.NON_IID, sweeps.PARTICIPATION)
    return [
        *wanted(scale, homogeneous=False),
        *wanted(scale, homogeneous=True),
        *(one for axis in axes for one in axis.settings()),
    ]


def show(results: Results) -> Exhibit:
    table = Table(
        ["the paper says: pFedES", "verdict", "we found"], [c.row() for c in claims(results)]
    )
    notes = [
        "A claim about all settings is confirmed only if it holds in all that were run; one about "
        "most settings if it holds in more than half. 'Falls' compares the ends of the curve.",
        "Costs until a target are those of tradeoff: the paper's target, or the highest multiple "
        "of 5 % that both reach.",
    ]
    return Exhibit({"claims": table}, notes=notes)


CLAIMS = Experiment(
    name="claims",
    title="The paper's claims, one by one",
    source="Sections 1 and 6",
    settings=needed,
    show=show,
)
