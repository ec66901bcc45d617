"""`pfedes check`: trying a participant out, without any network."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import typer
from rich.table import Table

from pfedes.cli._display import facts, output
from pfedes.config import Config, configure
from pfedes.config.limits import Limits
from pfedes.config.participant import Participant, read_participant
from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.deploy.participant.site_files import key_of
from pfedes.errors import ManyError, MethodError
from pfedes.methods.base import Method
from pfedes.population.own_data import class_names_of
from pfedes.population.preflight import advice_on
from pfedes.population.simulation import Simulation
from pfedes.privacy.budget import Prospect
from pfedes.results.disclosure import Direction, lists_of, told_by
from pfedes.securesum.credentials import fingerprint_of


def check(
    participant: Annotated[
        Path,
        typer.Argument(
            metavar="PARTICIPANT.toml", help="Participant file to check.", show_default=False
        ),
    ],
    *,
    federation: Annotated[
        Path | None,
        typer.Option(help="Configuration of the federation: classes, channels and method."),
    ] = None,
) -> None:
    """Check a participant's model and data, and show exactly what would leave.

    Loads both, takes one step through extractor and model, and names every problem at once, each
    with its remedy. Nothing is sent, nothing is written.
    """
    show_check(participant, federation)


def show_check(file: Path, federation: Path | Config | None) -> None:
    """Everything about one participant; an error at the end if anything is wrong."""
    participant = read_participant(file)
    try:
        simulation = Simulation(_alone(participant, federation))
    except ManyError as errors:
        prefix = f"{participant.name}: "
        _refuse(participant.name, [str(error).removeprefix(prefix) for error in errors.each])
    population, method = simulation.population, simulation.method
    ctx = simulation.context(1)
    problems = population.check(method, ctx)
    client = population.client(participant.name)
    labels = population.labels(participant.name)
    held = np.unique(np.concatenate(list(labels.values())))
    table = population.preprocess(participant.name)
    # Others share an extractor with it only if their numbers mean the same, in the same order.
    meant = {"which are": ", ".join(table.features)} if table is not None else {}
    output().print(
        facts(
            {
                "participant": participant.name,
                "model": f"{type(client.model).__name__}, "
                f"{sum(p.numel() for p in client.model.parameters()):,} parameters",
                "inputs": " x ".join(map(str, client.shape)),
                **meant,
                "samples": ", ".join(f"{len(part):,} {name}" for name, part in labels.items()),
                "classes": f"{len(held)} of {len(population.class_names)}: "
                + ", ".join(population.class_names[label] for label in held),
                "consents to": ", ".join(participant.methods),
                "shares": ", ".join(participant.share) or "nothing beside the upload",
            }
        )
    )
    output().print()
    card = population.card(participant.name, method.needs)
    once = [
        *told_by(card, ctx.metadata),
        "when it joins, the versions of pfedes, torch and nvflare",
    ]
    output().print(f"leaves once: {'; '.join(once)}", soft_wrap=True)
    # Whoever checks is about to join: over a network, whether or not the terms name anybody yet.
    up = lists_of(card, simulation, over_network=True)[1]
    output().print(f"leaves in every round of {method.name}: {up.numbers} numbers, and metadata")
    output().print(_listed(up))
    output().print("your limits, next to what this federation asks for:")
    output().print(_limited(participant.limits, method, card, ctx))
    _print_privacy(simulation, population.card(participant.name, method.needs), up.least)
    if left := participant.limits.left_out(card, ctx):
        output().print(
            f"note: the last batch has {left} samples: the uploaded part is not trained on them"
        )
    if simulation.config.privacy.secure_sum:
        for text in _about_sums(participant):
            output().print(f"secure sum: {text}", soft_wrap=True)
    rule, people = simulation.config.aggregation, simulation.config.federation.participants
    advice = rule.advice(len(people)) if method.averages_parameters else None
    remarks = population.remarks(participant.name)
    silent = table.constant if table is not None else []
    constant = [
        f"column {name!r} has the same value in all training rows: models learn nothing from it"
        for name in silent
    ]
    for text in [*advice_on(client), *remarks, *constant, *filter(None, [advice])]:
        output().print(f"note: {text}", soft_wrap=True)
    if problems:
        _refuse(participant.name, [f"{problem.what}: {problem.remedy}" for problem in problems])
    output().print(f"{participant.name} can take part")


def _print_privacy(simulation: Simulation, card: Card, numbers: int) -> None:
    """Prints the cost of a federation with `[privacy]`, and who is trusted with the noise."""
    config, limit = simulation.config, simulation.config.participants[0].limits.epsilon
    if not config.privacy.noisy:
        if limit:
            raise MethodError(f"{card.name}: limits.epsilon = {limit:g}, but privacy.mode is 'off'")
        return
    uploads = config.train.selected(config.clients)
    releases = math.ceil(config.train.rounds * uploads / config.clients)
    prospect = Prospect(config.privacy, releases, uploads, numbers)
    for line in (*prospect.lines(), *prospect.warnings()):
        output().print(line, soft_wrap=True)
    if config.privacy.mode == "central":
        output().print("the coordinator adds the noise; you cannot check that it does")


def _about_sums(participant: Participant) -> Iterator[str]:
    """The fingerprints by which this participant and the others know each other."""
    if participant.state and (place := key_of(participant)).exists():
        yield (
            f"your fingerprint, which the others put into their [peers], is {fingerprint_of(place)}"
        )
    else:
        yield "you have no key yet: 'pfedes request' makes one and prints its fingerprint"
    compared = ", ".join(sorted(participant.peers))
    yield (
        f"you take part with {compared} only, see [peers]"
        if compared
        else (
            "no [peers]: the sum protects you only if the coordinator does not forge participants"
        )
    )


def _refuse(name: str, problems: Sequence[str]) -> NoReturn:
    """All that is wrong, one line each."""
    for number, problem in enumerate(problems, 1):
        output().print(f"{number}. {problem}", soft_wrap=True, markup=False)
    count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
    raise MethodError(f"{name} cannot take part yet: {count}")


def _alone(participant: Participant, federation: Path | Config | None) -> Config:
    """The federation's configuration with this participant alone."""
    if isinstance(federation, Config):
        config = federation
    else:
        config = configure(federation, settings={"participants": []})
    terms = config.federation
    if not terms.classes:
        terms = terms.model_copy(update={"classes": class_names_of(participant)})
    return config.model_copy(update={"participants": (participant,), "federation": terms})


def _limited(limits: Limits, method: Method[Any], card: Card, ctx: Context) -> Table:
    """Every limit of the participant; those of what is received have nothing beside them yet."""
    table = Table(box=None, pad_edge=False, show_header=False)
    shown = set()
    for bound in limits.bounds(method, card, ctx):
        table.add_row(f"limits.{bound.key}", bound.allowed, f"{bound.name} = {bound.asked:g}")
        shown.add(bound.key)
    for key, value in limits.model_dump().items():
        if key not in shown:
            text = f"{value[0]:g} to {value[1]:g}" if isinstance(value, tuple) else f"{value:g}"
            table.add_row(f"limits.{key}", text, Limits.model_fields[key].description)
    return table


def _listed(direction: Direction) -> Table:
    """The allow-list of every answer: names and shapes, and nothing else."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for line in direction.tensors:
        name = f"or {line.name}" if line.instead else line.name
        table.add_row(name, line.shape, f"{line.numbers} numbers")
    for name, kind in direction.meta:
        table.add_row(name, kind, "metadata")
    return table
