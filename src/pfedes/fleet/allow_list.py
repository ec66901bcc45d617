"""The allow-list at the client: what it accepts, and what may leave it, in every fleet.

The method says what travels; a participant's consent and limits can only reduce that.
"""

from dataclasses import replace
from typing import Any

import torch

from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.payload import Payload, TensorSpec
from pfedes.core.protocol import MEMBER_META, REPLY_META, STAYS, SUMMAND, Task
from pfedes.core.wire import WireSpec, required
from pfedes.errors import RefusedError, WireError
from pfedes.methods.base import Method
from pfedes.population.base import Population


def check_consent(population: Population, method: Method[Any], card: Card, ctx: Context) -> None:
    """Raises a RefusedError for what a participant has not agreed to."""
    if (consent := population.consent(card.name)) is not None:
        for reason in consent.refusals(method, card, ctx):
            raise RefusedError(f"refused: {reason}")


def check_download(population: Population, method: Method[Any], task: Task, ctx: Context) -> None:
    """Raises a RefusedError for what the client may not be asked, or may not be sent."""
    card = population.card(task.client, method.needs)
    check_consent(population, method, card, ctx)
    try:
        method.allowed(card, ctx).down.check(task.download)
        if (consent := population.consent(task.client)) is not None:
            consent.limits.check_download(method, task.download)
    except WireError as error:
        raise RefusedError(f"download refused: {error}") from None


def check_reply(
    population: Population, method: Method[Any], client: str, reply: Payload, ctx: Context
) -> None:
    """Raises a WireError for what may not leave the client."""
    reply_spec(method, population.card(client, method.needs), ctx).check(reply)
    if (consent := population.consent(client)) is not None:
        consent.check_amount(reply)


def reply_spec(
    method: Method[Any], card: Card, ctx: Context, *, over_network: bool = False
) -> WireSpec:
    """Everything that may be in a client's reply; both sides check against it."""
    up = method.allowed(card, ctx).up
    stays = STAYS[ctx.metadata] if over_network else frozenset()
    common = {name: spec for name, spec in REPLY_META.items() if name not in stays}
    own = {} if over_network and ctx.metadata != "all" else up.meta
    if ctx.summed == "no":
        return WireSpec(up.groups, {**common, **own})
    if over_network:
        return WireSpec((), {**common, **own, **MEMBER_META})
    summand = {SUMMAND: TensorSpec((summand_size(up, ctx),), torch.int64)}
    return WireSpec((required(summand),), {**common, **own})


def told_card(card: Card, ctx: Context) -> Card:
    """The card that a participant sends when it enrols."""
    return card if ctx.metadata == "all" else replace(card, samples=1)


def summand_size(up: WireSpec, ctx: Context) -> int:
    """How many whole numbers a client adds to a secure sum."""
    forms = [form for group in up.groups for form in group.options[0].values()]
    numbers = sum(form.most_bytes // form.dtype.itemsize for form in forms)
    return numbers + 1 if ctx.summed == "by samples" else numbers
