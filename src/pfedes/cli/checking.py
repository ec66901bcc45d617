"""What `pfedes check` prints."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.table import Table

from pfedes.check import advice_on
from pfedes.cli.display import facts, output
from pfedes.config import Config, configure
from pfedes.data.own import class_names_of
from pfedes.errors import MethodError
from pfedes.fleet.host import reply_spec
from pfedes.participant import Participant, read_participant
from pfedes.payload import WireSpec
from pfedes.simulation import Simulation


def show_check(file: Path, federation: Path | None) -> None:
    """Everything about one participant; an error at the end if anything is wrong."""
    participant = read_participant(file)
    simulation = Simulation(_alone(participant, federation))
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
    output().print(_leaving(reply_spec(method, card, ctx), method.name))
    for text in advice_on(client):
        output().print(f"note: {text}", soft_wrap=True)
    for number, problem in enumerate(problems, 1):
        output().print(f"{number}. {problem.what}: {problem.remedy}", soft_wrap=True)
    if problems:
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        raise MethodError(f"{participant.name} cannot take part yet: {count}")
    output().print(f"{participant.name} can take part")


def _alone(participant: Participant, federation: Path | None) -> Config:
    """The federation's configuration, with nobody else in it."""
    config = configure(federation, settings={"participants": []})
    terms = config.federation
    if not terms.classes:
        terms = terms.model_copy(update={"classes": class_names_of(participant)})
    return config.model_copy(update={"participants": (participant,), "federation": terms})


def _leaving(spec: WireSpec, method: str) -> Table:
    """What would leave in every round: names and shapes, and nothing else."""
    table = Table(f"leaves with {method}", "what", "numbers", box=None, pad_edge=False)
    for name, what, numbers in _lines(spec):
        table.add_row(name, what, numbers)
    return table


def _lines(spec: WireSpec) -> Iterator[tuple[str, str, str]]:
    for group in spec.groups:
        for number, option in enumerate(group.options):
            for name, tensor in option.items():
                either = "or " if number else ""
                yield name, f"{either}{tensor}", tensor.most_numbers()
    for name, kind in spec.meta.items():
        yield name, kind.__name__ if isinstance(kind, type) else str(kind), "metadata"
