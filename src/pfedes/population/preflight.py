"""Tries a client's model and data before round 1."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes.core.client import Client
from pfedes.errors import kind_and_text
from pfedes.methods.base import Problem
from pfedes.models.extractor import extractor_for

LARGE = 50.0  # an input beyond it makes the first steps explode
BATCH = 32


def problems_of(client: Client) -> list[Problem]:
    """Everything that would go wrong, or continue without learning; each with what would help."""
    found = []
    for look in (_of_data, _of_model, _of_training):
        try:
            found += [Problem(client.name, what, remedy) for what, remedy in look(client)]
        except Exception as error:  # the model is the user's, and may raise anything
            what = f"the model failed: {kind_and_text(error)}"
            remedy = "make its forward pass work on a batch of training samples"
            found.append(Problem(client.name, what, remedy))
    return found


def advice_on(client: Client) -> Iterator[str]:
    """What works, but is probably a mistake."""
    learned, tested = (set(part.labels.tolist()) for part in (client.train, client.test))
    if absent := tested - learned:
        yield f"the test data has {len(absent)} classes that are not in the training data"
    if untested := learned - tested:
        yield (
            f"the test data has no samples of {len(untested)} classes of the training data: no "
            "score will show whether the model knows them"
        )
    if len(client.val) == 0:
        yield "there is no validation data: the best round cannot be chosen"
    seen = {_bytes(sample) for sample in client.train.inputs}
    if repeated := sum(_bytes(sample) in seen for sample in client.test.inputs):
        yield f"{repeated} test samples are in the training data too"


def _of_data(client: Client) -> Iterator[tuple[str, str]]:
    if len(client.train.labels.unique()) < 2:
        yield "all training samples are of one class", "training needs at least two classes"
    batch = next(client.train.in_order(BATCH))
    if (largest := float(batch.x.abs().max())) > LARGE:
        remedy = "give bytes or numbers near 0, or set federation.mean and federation.std"
        yield f"inputs reach {largest:.0f}", remedy
    if float(batch.x.std()) == 0:
        yield "all inputs are the same number", "check how the data is read"


def _of_model(client: Client) -> Iterator[tuple[str, str]]:
    parameters = dict(client.model.named_parameters())
    if not parameters:
        yield "the model has no parameters", "register its layers as attributes of the module"
    if resting := [name for name, p in parameters.items() if not p.requires_grad]:
        what = f"{len(resting)} of {len(parameters)} parameters are frozen, {resting[0]} first"
        yield what, "call requires_grad_(True) on the model"
    if other := [name for name, p in parameters.items() if p.dtype != torch.float32]:
        yield f"{other[0]} is {parameters[other[0]].dtype}", "call .float() on the model"
    if any(not module.training for module in client.model.modules()):
        yield "the model is in evaluation mode", "do not call .eval() on it"


def _of_training(client: Client) -> Iterator[tuple[str, str]]:
    """A forward and a backward pass, of the model and through it to an extractor."""
    model = client.model.train()
    batch = next(client.train.in_order(BATCH))
    logits = model(batch.x)
    if not bool(torch.isfinite(logits).all()):
        yield "the untrained model answers with NaN or infinity", "check its initial weights"
        return
    F.cross_entropy(logits, batch.y).backward()
    if dry := _without_gradient(model):
        what = f"no gradient arrives at {len(dry)} parameters, {dry[0]} first"
        yield what, "use them in forward, or leave them out; do not detach their outputs"
    model.zero_grad()
    # Without a last ReLU: one that happens to be dead would look like a model that stops gradients.
    extractor = extractor_for(client.shape, 8, "none").to(client.device)
    F.cross_entropy(model(extractor(batch.x)), batch.y).backward()
    if _without_gradient(extractor):
        what = "no gradient reaches the input of the model"
        yield what, "remove detach(), no_grad() and conversions from the beginning of its forward"
    model.zero_grad()


def _without_gradient(module: nn.Module) -> list[str]:
    return [n for n, p in module.named_parameters() if p.requires_grad and p.grad is None]


def _bytes(sample: Tensor) -> bytes:
    return sample.cpu().contiguous().numpy().tobytes()
