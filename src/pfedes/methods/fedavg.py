"""FedAvg: one model for everybody, the homogeneous reference.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from pfedes.core.client import Card, Client, Parameters, parameters_of
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State, TensorSpec
from pfedes.core.training import fit_labels
from pfedes.core.wire import WireSpec, required
from pfedes.methods.base import Method, MethodConfig, Problem, Received, Upload, Wire, averaged
from pfedes.models import build_model


class FedAvgConfig(MethodConfig):
    """FedAvg has no hyper-parameters of its own."""

    name: Literal["fedavg"] = "fedavg"


class FedAvg(Method[FedAvgConfig]):
    """The headline is the global model on all clients; the just-trained one is a second column."""

    Config = FedAvgConfig
    needs = frozenset({"parameters"})

    @property
    def averages_parameters(self) -> bool:
        return True

    @property
    def additive(self) -> bool:
        return True

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        expected = parameters_of(_initial(cards, ctx))
        return [
            Problem(
                card.name,
                f"its model is not {ctx.pool[0]}: {_difference(expected, card.parameters or {})}",
                "FedAvg averages whole models: set models.pool to one architecture",
            )
            for card in cards
            if card.parameters != expected
        ]

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        return State(_initial(cards, ctx).state_dict())

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        return Payload(state.tensors)

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        client.model.load_state_dict(download.tensors)
        loss = fit_labels(client, ctx, received=download.tensors)
        return Upload(loss, client.model.state_dict())

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        return State(averaged(uploads, ctx))

    def personal(self, client: Client, download: Payload | None, ctx: Context) -> nn.Module:
        if download is not None:
            client.model.load_state_dict(download.tensors)
        return client.model

    def evaluated_after_aggregation(self, ctx: Context) -> bool:
        return True

    def allowed(self, card: Card, ctx: Context) -> Wire:
        model = required(
            {
                name: TensorSpec(shape, getattr(torch, dtype))
                for name, (dtype, shape) in (card.parameters or {}).items()
            }
        )
        return Wire(down=WireSpec((model,)), up=WireSpec((model,)))


def _initial(cards: Sequence[Card], ctx: Context) -> nn.Module:
    with ctx.streams.ambient("init.shared"):
        return build_model(ctx.pool[0], ctx.classes, cards[0].shape)


def _difference(expected: Parameters, found: Parameters) -> str:
    """The first tensor in which two models differ."""
    for name in [*expected, *found]:
        want, have = expected.get(name), found.get(name)
        if want != have:
            return f"{name} is {list(have[1]) if have else 'absent'}, expected " + (
                str(list(want[1])) if want else "absent"
            )
    return "same tensors in another order"
