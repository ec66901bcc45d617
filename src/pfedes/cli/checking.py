"""What `pfedes check` prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
from rich.table import Table

from pfedes.check import advice_on
from pfedes.cli.display import facts, output
from pfedes.config import Config, configure
from pfedes.data.own import class_names_of
from pfedes.errors import ManyError, MethodError
from pfedes.participant import Participant, read_participant
from pfedes.report.wire import Direction, lists_of, told_by
from pfedes.simulation import Simulation


def show_check(file: Path, federation: Path | None) -> None:
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
    output().print(
        facts(
            {
                "participant": participant.name,
                "model": f"{type(client.model).__name__}, "
                f"{sum(p.numel() for p in client.model.parameters()):,} parameters",
                "inputs": " x ".join(map(str, client.shape)),
                "samples": ", ".join(f"{len(part):,} {name}" for name, part in labels.items()),
                "classes": f"{len(held)} of {len(population.class_names)}: "
                + ", ".join(population.class_names[label] for label in held),
                "consents to": ", ".join(participant.methods),
            }
        )
    )
    output().print()
    card = population.card(participant.name, method.needs)
    output().print(f"leaves once: {'; '.join(told_by(card))}", soft_wrap=True)
    up = lists_of(card, simulation)[1]
    output().print(f"leaves in every round of {method.name}: {up.numbers} numbers, and metadata")
    output().print(_listed(up))
    for text in advice_on(client):
        output().print(f"note: {text}", soft_wrap=True)
    if problems:
        _refuse(participant.name, [f"{problem.what}: {problem.remedy}" for problem in problems])
    output().print(f"{participant.name} can take part")


def _refuse(name: str, problems: Sequence[str]) -> NoReturn:
    """All that is wrong, one line each."""
    for number, problem in enumerate(problems, 1):
        output().print(f"{number}. {problem}", soft_wrap=True, markup=False)
    count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
    raise MethodError(f"{name} cannot take part yet: {count}")


def _alone(participant: Participant, federation: Path | None) -> Config:
    """The federation's configuration, with nobody else in it."""
    config = configure(federation, settings={"participants": []})
    terms = config.federation
    if not terms.classes:
        terms = terms.model_copy(update={"classes": class_names_of(participant)})
    return config.model_copy(update={"participants": (participant,), "federation": terms})


def _listed(direction: Direction) -> Table:
    """The allow-list of every answer: names and shapes, and nothing else."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for line in direction.tensors:
        name = f"or {line.name}" if line.instead else line.name
        table.add_row(name, line.shape, f"{line.numbers} numbers")
    for name, kind in direction.meta:
        table.add_row(name, kind, "metadata")
    return table
