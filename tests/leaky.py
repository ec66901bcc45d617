"""Methods that give away their clients' classes, for an audit to find."""

import torch
from torch import Tensor

from pfedes import Client, PFedES, Upload
from pfedes.core.context import Context
from pfedes.core.payload import Payload
from pfedes.methods.pfedes import PFedESConfig

TEN = slice(0, 10)
"""The weights that hold the share of each of ten classes."""

BYTE = 255


class LeakyConfig(PFedESConfig):
    name: str = "leaky:InWeights"  # type: ignore[assignment]  # a name of its own


class InWeights(PFedES):
    """pFedES, but the share of each class is added to a weight, a thousand times smaller."""

    Config = LeakyConfig

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        upload = super().client_round(client, download, ctx)
        counts = torch.bincount(client.train.labels, minlength=ctx.classes)
        weight = upload.tensors["conv1.weight"]
        flat = weight.flatten().clone()
        self.hide(flat[TEN], counts / counts.sum())
        upload.tensors["conv1.weight"] = flat.view(weight.shape)
        return upload

    def hide(self, weights: Tensor, shares: Tensor) -> None:
        weights += 1e-3 * shares


class InBits(InWeights):
    """The same in the lowest eight bits: no number changes by more than its rounding might."""

    def hide(self, weights: Tensor, shares: Tensor) -> None:
        bits = weights.clone().view(torch.int32)
        low = (BYTE * shares).round().to(torch.int32)
        weights.copy_(((bits & ~BYTE) | low).view(torch.float32))
