"""Counts the client's own samples to which the units of a received extractor respond.

A unit behind a ReLU that responds to one sample learns from that sample alone: the change of its
weights divided by the change of its bias is the sample. The sender of such an extractor can read
pixels from the upload. So units that respond to few samples are not trained.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from pfedes.core.client import Client
from pfedes.core.context import Context
from pfedes.errors import WireError
from pfedes.models.extractor import ACTIVATIONS

log = logging.getLogger(__name__)

Layer = nn.Conv1d | nn.Conv2d | nn.Linear


@dataclass(frozen=True)
class Rare:
    """The units of each layer that must not learn here, and what was received."""

    units: dict[str, Tensor]
    received: dict[str, Tensor]

    @torch.no_grad()
    def put_back(self, extractor: nn.Module) -> None:
        """Undoes what was learned about them: by themselves, and by those that listen to them."""
        layers = layers_of(extractor)
        for name, rare in self.units.items():
            for key, values in layers[name].named_parameters():
                values[rare] = self.received[f"{name}.{key}"][rare]
        for (name, layer), (next_name, listener) in pairwise(layers.items()):
            if name in self.units and listener.weight.shape[1] == layer.weight.shape[0]:
                before, rare = self.received[f"{next_name}.weight"], self.units[name]
                listener.weight[:, rare] = before[:, rare]


def examined(client: Client, extractor: nn.Module, ctx: Context) -> Rare:
    """The units that answer to too few of the client's samples.

    Raises a WireError if nearly all hidden units are silent, as in an extractor made to spy.
    """
    caution = ctx.caution
    if not caution.crowd and caution.silent == 1:
        return Rare({}, {})
    answers = firing(client, extractor, ctx.train.batch_size)
    fewest = max(2, math.ceil(caution.crowd * len(client.train))) if caution.crowd else 1
    *hidden, _ = layers_of(extractor)
    few = [count < fewest for name, count in answers.items() if name in hidden]
    share = float(torch.cat(few).double().mean()) if few else 0.0
    if share > caution.silent:
        raise WireError(
            f"download refused: {share:.0%} of the extractor's hidden units are silent on "
            f"the participant's samples, but limits.silent allows {caution.silent:.0%}"
        )
    units = {}
    for name, count in answers.items():
        rare = (count > 0) & (count < fewest)
        if bool(rare.any()):
            units[name] = rare
            log.info(
                "%s: %d units of %s respond to fewer than %d samples and stay as received",
                *(client.name, int(rare.sum()), name, fewest),
            )
    kept = extractor.state_dict() if units else {}
    return Rare(units, {name: tensor.clone() for name, tensor in kept.items()})


@torch.no_grad()
def firing(client: Client, extractor: nn.Module, batch_size: int) -> dict[str, Tensor]:
    """For each layer, on how many training samples each unit is positive anywhere."""
    counts: dict[str, Tensor] = {}

    def count(name: str, layer: Layer, output: Tensor) -> None:
        units = output.dim() - 1 if isinstance(layer, nn.Linear) else 1
        fires = (output > 0).movedim(units, 1).flatten(2).any(2) if output.dim() > 2 else output > 0
        found = fires.sum(0).cpu()
        counts[name] = counts.get(name, torch.zeros_like(found)) + found

    hooks = [
        layer.register_forward_hook(lambda layer, _, output, name=name: count(name, layer, output))
        for name, layer in _before_relu(extractor)
    ]
    was_training = extractor.training
    extractor.eval()
    try:
        for batch in client.train.in_order(batch_size):
            extractor(batch.x)
    finally:
        extractor.train(was_training)
        for hook in hooks:
            hook.remove()
    return counts


def layers_of(extractor: nn.Module) -> dict[str, Layer]:
    """The layers with weights, in the order in which they were made."""
    found = extractor.named_modules()
    return {name: layer for name, layer in found if isinstance(layer, Layer)}


def _before_relu(extractor: nn.Module) -> Iterator[tuple[str, Layer]]:
    """The layers whose negative outputs come to nothing; of an unknown extractor, all."""
    layers = list(layers_of(extractor).items())
    final = getattr(extractor, "final", None)
    yield from layers if final in (None, ACTIVATIONS["relu"]) else layers[:-1]
