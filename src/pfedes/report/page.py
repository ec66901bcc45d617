"""Turning a run into a page that opens offline."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pfedes.core.measures import METRICS, Metric
from pfedes.errors import PfedesError
from pfedes.formatting import computed, count, counted, measured, percent
from pfedes.report.audited import NOT_SAFE, audited
from pfedes.report.clients import Spread, client_grid
from pfedes.report.confusion import classes_of
from pfedes.report.enhanced import SCALING, enhanced_figure, enhanced_pairs
from pfedes.report.figures import accuracy_figure, distribution_figure
from pfedes.report.grid import MOST_ROWS, Grid, GridCell, flops, number, share, shortened, text
from pfedes.report.holdings import holdings_of
from pfedes.report.privacy import privacy_facts, secure_sum_facts
from pfedes.report.svg import inline_svg
from pfedes.report.template import fill
from pfedes.report.wire import wire_report
from pfedes.version import __version__

if TYPE_CHECKING:
    from pfedes.population.simulation import Simulation
    from pfedes.results.run import Run


@dataclass(frozen=True)
class Enhanced:
    """Images and their enhanced versions, ready to be shown."""

    svg: str
    classes: str
    round: int
    zeros: float
    scaling: str = SCALING


def render(run: "Run", simulation: "Simulation | None" = None) -> str:
    """The report of a run as one self-contained page."""
    summary = run.summary
    why_not = ""
    if simulation is None or not simulation.population.is_here:
        simulation, why_not = _simulation_of(run)
    with run.reading_rows():
        accuracy, distribution = _accuracy_pictures(run, summary)
        clients, rounds = client_grid(run, simulation), _round_grid(run)
    holdings = holdings_of(simulation) if simulation is not None else None
    return fill(
        "report.html",
        title=run.directory.resolve().name,
        summary=summary,
        finished=run.finished,
        planned=run.config.train.rounds,
        facts=list(_facts(run, simulation)),
        results=list(_results(summary, run.config.metric)),
        costs=list(_costs(summary, len(run.clients))),
        accuracy=accuracy,
        spread=Spread.of(summary["accuracies"]) if distribution else None,
        distribution=distribution,
        clients=clients,
        classes=classes_of(run),
        holdings=holdings,
        holdings_svg=inline_svg(holdings.figure, "partition") if holdings is not None else "",
        wire=wire_report(run, simulation) if simulation is not None else None,
        why_not=why_not,
        audited=audited(run),
        not_safe=NOT_SAFE,
        rounds=rounds,
        enhanced=_enhanced(run, simulation) if simulation is not None else None,
        privacy=_privacy(run, summary),
        trouble=_trouble(summary),
        failed_rounds=[row["round"] for row in run.rounds if row["status"] != "ok"],
        tasks=len(run.clients),
        config=run.config.to_toml(),
        command=f"pfedes run {shlex.quote(str(run.directory / 'config.toml'))}",
        needs_data=run.config.data.source.startswith("cifar") and not run.config.data.dir,
    )


def _accuracy_pictures(run: "Run", summary: Mapping[str, Any]) -> tuple[str, str]:
    """Over rounds and over clients; '' where participants keep their scores."""
    if not summary["accuracies"]:
        return "", ""
    return (
        inline_svg(accuracy_figure(run.rounds, run.manifest.initial_accuracy), "accuracy"),
        inline_svg(distribution_figure(summary["accuracies"]), "distribution"),
    )


def _simulation_of(run: "Run") -> "tuple[Simulation | None, str]":
    """The run's simulation, from its data or the stored part of it; else why there is none."""
    try:
        simulation = run.simulation
        if run.environment["data"] != simulation.population.digest:
            simulation = _stored(run) or simulation
    except PfedesError as error:
        if (stored := _stored(run)) is None:
            return None, str(error)
        simulation = stored
    if not simulation.population.is_here:
        return None, "participants keep their models and data to themselves"
    if run.environment["data"] != simulation.population.digest:
        return None, "the data is not what the run was trained on"
    if set(simulation.population.names) != run.manifest.clients.keys():
        return None, "config.toml does not describe the run's clients"
    return simulation, ""


def _stored(run: "Run") -> "Simulation | None":
    try:
        return run.stored
    except PfedesError:  # damaged, or of other data: as if nothing had been kept
        return None


def _facts(run: "Run", simulation: "Simulation | None") -> Iterator[tuple[str, str]]:
    """The facts of the run, in a few lines."""
    config = run.config
    own = config.method.model_dump(exclude={"name"})
    said = (f"{key} = {value}" for key, value in own.items() if value != "")
    yield "method", ", ".join([config.method.name, *said])
    if simulation is None:
        yield "data", "participants' own" if config.brings_own else config.data.source
    else:
        population = simulation.population
        shapes = {" x ".join(map(str, card.shape)) for card in run.store.cards(run.manifest)}
        classes = f"{len(population.class_names)} classes"
        source = "participants' own" if config.brings_own else config.data.source
        held = f"{population.samples:,} samples of {' and '.join(sorted(shapes))}"
        yield "data", f"{source}: {held}, {classes}"
    if not config.brings_own:
        yield "partition", _partition_words(config.partition.model_dump())
    if simulation is not None:
        models = list(simulation.population.architectures.values())
        kinds = [f"{models.count(name):,} x {name}" for name in sorted(set(models))]
        yield "models", ", ".join(kinds)
    train = config.train
    asked = counted(train.selected(len(run.manifest.clients)), "client")
    yield (
        "a round",
        (
            f"{asked}, {counted(train.epochs, 'epoch')} each in batches of {train.batch_size}, "
            f"learning rate {train.lr:g}"
        ),
    )
    yield "precision", " and ".join(config.precisions)
    yield "aggregation", config.aggregation.kind
    yield "seed", str(config.seed)
    about = run.environment
    yield (
        "made by",
        (
            f"pfedes {about.get('pfedes', '?')}, torch {about['torch_build']}, "
            f"Python {about.get('python', '?')}; this page by pfedes {__version__}"
        ),
    )
    yield "made on", f"{about.get('processor') or 'unknown'}, {about.get('cores', '?')} cores"
    if config.runtime.fleet == "cluster" and config.runtime.mixed_hardware:
        yield "nodes", "of different processors, perhaps: bit equality is not promised"
    if begun := about.get("begun"):
        yield "begun", str(begun).replace("+00:00", " UTC")
    if isinstance(command := about.get("command"), list) and command:
        yield "begun with", shlex.join([str(command[0]).rpartition("/")[2], *map(str, command[1:])])


def _results(summary: Mapping[str, Any], metric: Metric) -> Iterator[tuple[str, str]]:
    """The results. The best round is chosen by validation, never by test."""
    yield "before training", percent(summary["initial_accuracy"])
    yield f"after round {summary['rounds']}", percent(summary["mean_accuracy"])
    if summary["best_round"] is not None:
        best = f"{percent(summary['best_accuracy'])}, round {summary['best_round']}"
        by = "" if metric == "accuracy" else f" ({METRICS[metric]})"
        yield f"best round by validation{by}", best
    if summary["last10_accuracy"] is not None:
        meant = counted(min(10, summary["rounds"]), "round")
        yield f"mean of the last {meant}", percent(summary["last10_accuracy"])
    if summary["best_selected_round"] is not None:
        best = (
            f"{percent(summary['best_selected_accuracy'])}, round {summary['best_selected_round']}"
        )
        yield "best round's selected clients (the authors' rule)", best
    for target in summary["targets"]:
        costs = f"{count(target['floats'])} floats, {computed(target['flops'])}"
        if "flops_server" in target:
            costs += f" and {computed(target['flops_server'])} by the server"
        reached = f"round {target['round']}: {costs}"
        yield (
            f"until {percent(target['accuracy'])}",
            "not reached" if target["round"] is None else reached,
        )


def _privacy(run: "Run", summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The cost of releases for clients; empty without noise."""
    summed = list(secure_sum_facts(run.config.privacy, elsewhere=run.store.is_elsewhere))
    if "privacy" not in summary:
        return summed
    ended = [("ended", "the budget is spent")] if "ended" in summary else []
    simulated = not run.store.is_elsewhere
    facts = privacy_facts(summary["privacy"], run.config.privacy.metadata, simulated=simulated)
    return [*summed, *facts, *ended]


def _costs(summary: Mapping[str, Any], tasks: int) -> Iterator[tuple[str, str]]:
    for direction, name in (("down", "sent to clients"), ("up", "sent by clients")):
        floats, size = summary[f"floats_{direction}"], summary[f"bytes_{direction}"]
        meta = summary[f"metadata_{direction}"]
        yield (
            name,
            f"{count(floats)} floats ({measured(size, 'B')}), {count(meta)} metadata values",
        )
    if tasks:
        both = (summary["floats_down"] + summary["floats_up"]) / tasks
        share_of_all = None if summary["flops"] is None else summary["flops"] / tasks
        each = f"{count(both)} floats both ways, {computed(share_of_all)}"
        yield "for each client and round", each
    if summary["floats_evaluation"]:
        floats = f"{count(summary['floats_evaluation'])} floats, not counted above"
        yield "sent to measure after aggregation", floats
    yield "computed by clients", computed(summary["flops"])
    if "flops_server" in summary:
        yield "computed by the server", computed(summary["flops_server"])
    yield "time", f"{summary['seconds']:.1f} s"


def _partition_words(settings: Mapping[str, Any]) -> str:
    words = {
        "classes": f"{settings['classes_per_client']} classes for each",
        "dirichlet": f"Dirichlet with alpha = {settings['alpha']:g}",
        "iid": "the same share of every class",
    }[settings["kind"]]
    split = settings["split"]
    parts = split if isinstance(split, str) else " : ".join(f"{100 * s:g}" for s in split)
    return f"{counted(settings['clients'], 'client')}, {words}; split {parts}"


def _round_grid(run: "Run") -> Grid:
    """Accuracy and costs of each round, the latest rounds of many."""
    keys = ("floats_down", "floats_up", "metadata_up")
    server_trains = any("flops_server" in row for row in run.rounds)
    rows = [
        [
            GridCell(f"{row['round']}" if row["status"] == "ok" else f"{row['round']} (failed)",
                 row["round"]),
            share(row["accuracy"]),
            number(row["selected"]),
            number(row["answered"]),
            *(number(row[key]) for key in keys),
            flops(row["flops"]),
            *([number(row.get("flops_server", 0))] if server_trains else []),
            GridCell(f"{row['seconds']:.1f} s", row["seconds"]),
        ]
        for row in run.rounds[-MOST_ROWS:]
    ]  # fmt: skip
    return Grid(
        "Costs of each round",
        [
            *("round", "accuracy", "asked", "answered"),
            *(key.replace("_", " ") for key in keys),
            *(["FLOP", "server FLOP"] if server_trains else ["FLOP"]),
            "time",
        ],
        rows,
        shortened(len(run.rounds), "rounds, the latest", "rounds.jsonl"),
        ascending=0,
    )


def _trouble(summary: Mapping[str, Any]) -> Grid | None:
    """Failures and rejected uploads, the latest first; None without any."""
    events = [
        (event["round"], event["client"], what, event["reason"])
        for key, what in (
            ("rejected_uploads", "upload rejected"),
            ("failed_clients", "client failed"),
        )
        for event in summary[key]
    ]
    events.sort(key=lambda event: (-event[0], event[1]))
    if not events:
        return None
    return Grid(
        "Rejected uploads and failed clients",
        ["client", "round", "what", "reason"],
        [
            [text(str(client)), GridCell(str(round), round), text(what), text(str(reason))]
            for round, client, what, reason in events[:MOST_ROWS]
        ],
        shortened(len(events), "events, the latest", "clients.jsonl"),
    )


def _enhanced(run: "Run", simulation: "Simulation") -> Enhanced | None:
    pairs = enhanced_pairs(run, simulation=simulation)
    if pairs is None:
        return None
    svg = inline_svg(enhanced_figure(pairs), "enhanced")
    return Enhanced(svg, ", ".join(pairs.classes), pairs.round, pairs.zeros)
