"""The release of a round: the new state and, with noise by `[privacy]`, the cost for clients."""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State
from pfedes.core.protocol import Fleet, Task
from pfedes.errors import WireError
from pfedes.federation.admission import Verdict
from pfedes.federation.ledger import Ledger
from pfedes.fleet.summing import total_of, with_masked
from pfedes.methods.base import Received
from pfedes.methods.contract import check_shared
from pfedes.population.simulation import Simulation
from pfedes.privacy.budget import Prospect
from pfedes.privacy.encoding import digest_of
from pfedes.privacy.mechanism import Mechanism

log = logging.getLogger(__name__)


def prospect_of(
    simulation: Simulation, cards: Sequence[Card], state: State, tasks: Sequence[Task]
) -> Prospect | None:
    """The cost of privacy, before training; None if no noise is added.

    Raises a MethodError if what is shared cannot be protected.
    """
    privacy, train = simulation.config.privacy, simulation.config.train
    if privacy.noisy or privacy.secure_sum:
        check_shared(simulation.method.name, state, tasks)
    if not privacy.noisy:
        return None
    uploads = train.selected(len(cards))
    releases = math.ceil(train.rounds * uploads / len(cards))
    prospect = Prospect(privacy, releases, uploads, state.floats)
    for line in prospect.lines():
        log.info(line)
    for line in prospect.warnings():
        log.warning(line)
    return prospect


def new_state(
    simulation: Simulation,
    ledger: Ledger,
    ctx: Context,
    tasks: Sequence[Task],
    uploads: Sequence[Received],
) -> State:
    """The new state of the server. A release is recorded before it is computed."""
    method = simulation.method
    if ledger.budget is None:
        return method.aggregate(ledger.state, uploads, ctx)
    if ledger.config.privacy.mode == "local":
        return method.aggregate(ledger.state, [_uniform(upload) for upload in uploads], ctx)
    mechanism = _mechanism(simulation, ledger)
    sent = {task.client: task.download.tensors for task in tasks}
    changes = {
        upload.card.name: mechanism.clipped(upload.payload.tensors, sent[upload.card.name])
        for upload in uploads
    }
    ledger.record(ctx.round, digest_of(changes), changes)
    return method.moved(ledger.state, mechanism.mean(changes, ctx.round), ctx)


def summed(
    simulation: Simulation,
    fleet: Fleet,
    ledger: Ledger,
    ctx: Context,
    verdicts: Sequence[Verdict],
) -> tuple[list[Verdict], State]:
    """The state moved by the mean of a secure sum; the state as it is if there is no such sum.

    Who was accepted and is not in the sum has failed after all.
    """
    replies = [v.reply for v in verdicts if v.status == "ok" and v.reply is not None]
    try:
        total = total_of(fleet, ctx.round, replies)
        change = simulation.mechanism().mean_of(total.values, len(total.names))
    except WireError as error:
        log.warning("round %d: there is no sum: %s", ctx.round, error)
        return [_left_out(verdict) for verdict in verdicts], ledger.state
    if ledger.budget is not None:
        ledger.record(ctx.round, digest_of({"sum": total.values}), total.names)
    judged = [
        replace(verdict, reply=with_masked(verdict.reply, total))
        if verdict.reply is not None and verdict.task.client in total.names
        else _left_out(verdict)
        for verdict in verdicts
    ]
    return judged, simulation.method.moved(ledger.state, change, ctx)


def _left_out(verdict: Verdict) -> Verdict:
    """The failure of a client that was ready but is not in the sum."""
    if verdict.status != "ok":
        return verdict
    return replace(verdict, status="failed", reason="not in the secure sum", code="failed")


def charge(ledger: Ledger, round: int, verdicts: Sequence[Verdict]) -> None:
    """Accounts for what clients have sent with noise of their own, accepted or not."""
    sent = {
        verdict.task.client: verdict.reply.payload
        for verdict in verdicts
        if verdict.asked and verdict.reply is not None
    }
    if sent:
        # Of the numbers alone: trained again, a client needs other seconds for the same upload.
        digests = [Payload(sent[name].tensors).digest() for name in sorted(sent)]
        ledger.record(round, sha256("".join(digests).encode()).hexdigest(), sent)


def _mechanism(simulation: Simulation, ledger: Ledger) -> Mechanism:
    """Simulations repeat their noise; a federation's is secret, and its runs' differ."""
    if simulation.population.is_here:
        return simulation.mechanism()
    assert ledger.budget is not None
    secret = ledger.store.noise_key(released=len(ledger.budget) > 0)
    return simulation.mechanism(lambda whose: secret, ledger.manifest.run)


def _uniform(upload: Received) -> Received:
    """Counts the client as one sample, so that the sum does not reveal how many it has."""
    return replace(upload, card=replace(upload.card, samples=1))
