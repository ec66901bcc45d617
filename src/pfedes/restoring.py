"""A client's model as it was after a round, from the files it left."""

from functools import partial

from torch import nn

from pfedes.client import Client
from pfedes.clientstore import ClientStore
from pfedes.facts import Moment, facts_of
from pfedes.fleet.base import Task
from pfedes.fleet.host import personal_model
from pfedes.own import is_own
from pfedes.payload import Payload
from pfedes.personal import Personal
from pfedes.simulation import Simulation


def restored(simulation: Simulation, store: ClientStore, task: Task) -> tuple[Client, nn.Module]:
    """The client at a task's base, and the model that it uses given what the task brings."""
    client = simulation.host(store).restore(task)
    ctx = simulation.context(task.round)
    return client, personal_model(simulation.method, client, task.download, ctx)


def personal_at(
    simulation: Simulation, store: ClientStore, name: str, moment: Moment, download: Payload
) -> Personal:
    """A client's model at a moment, with all it takes to predict with it or export it."""
    task = Task(moment.run, name, moment.round, moment.version, download)
    client, model = restored(simulation, store, task)
    facts = facts_of(simulation, store, moment, client, client.score(model))
    population = simulation.population
    return Personal(
        model,
        population.class_names,
        client.train.prepare,
        client.shape,
        facts,
        partial(population.untrained, name) if is_own(facts.architecture) else None,
    )
