"""An extractor of the user's own: found by name, built, and examined before it is trusted."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pfedes.core.shapes import Shape
from pfedes.errors import ConfigError, ModelError, kind_and_text, said
from pfedes.imports import imported

Build = Callable[[Shape], nn.Module]
"""Makes a freshly initialised extractor for inputs of a shape."""

BATCH = 3
"""Samples in the batches by which an extractor is examined."""


def own_extractor(name: str) -> Build:
    """The function that `module:function` names; what it does wrong is said in one line."""
    function = imported("method.extractor", name)
    if not callable(function):
        raise ConfigError(f"method.extractor {name!r} is {_a(function)}, not a function")

    def build(shape: Shape) -> nn.Module:
        try:
            module = function(shape)
        except Exception as error:  # it is not ours, and may raise anything
            raise _fault(f"{name}({shape}) raises {kind_and_text(error)}") from None
        if not isinstance(module, nn.Module):
            raise _fault(f"{name}({shape}) returns {_a(module)}, not a torch.nn.Module")
        return module

    return build


def examine(new: Callable[[], nn.Module], shape: Shape) -> None:
    """Whether what is made can serve as an extractor; a ModelError says why it cannot."""
    try:
        with torch.random.fork_rng(
            devices=[]
        ):  # dropout draws too; the caller's generator stays as it was
            module, again = new(), new()
            _examine_parameters(module, again)
            _examine_output(module.eval(), shape)
            _examine_gradient(module.train(), shape)
    except ModelError:
        raise
    except Exception as error:  # its layers are not ours either
        where = f"with inputs of {list(shape)}"
        raise _fault(f"raises {type(error).__name__} {where}: {said(error)}") from None


def _examine_parameters(module: nn.Module, again: nn.Module) -> None:
    parameters = dict(module.named_parameters(remove_duplicate=False))
    if not parameters:
        raise _fault("has no parameters: there is nothing to share")
    state = module.state_dict()
    if others := [name for name in state if name not in parameters]:
        # Averaged running statistics match no client's data. The model would use the received
        # ones and the extractor those of the batch, so that they would train different functions.
        raise _fault(
            f"holds {others[0]!r}, which is not a parameter: normalise by GroupNorm or "
            "LayerNorm instead of BatchNorm, register constants with persistent=False"
        )
    mine = {id(parameter) for parameter in parameters.values()}
    if any(id(parameter) in mine for parameter in again.parameters()):
        raise _fault("is the same object at every call: make a new one each time")
    other = again.state_dict()
    if state.keys() != other.keys() or any(
        state[name].shape != other[name].shape or not torch.equal(state[name], other[name])
        for name in state
    ):
        raise _fault("has different weights at every call: draw them from torch's own generator")


@torch.no_grad()
def _examine_output(module: nn.Module, shape: Shape) -> None:
    noise = _noise(shape)
    for x in (torch.zeros(BATCH, *shape), noise):
        before = x.clone()
        found = module(x)
        _examine_shape(found, before)
        if not torch.equal(x, before):
            raise _fault("changes its input: leave out inplace=True in its first layer")
        if not bool(torch.isfinite(found).all()):
            raise _fault(f"gives NaN or infinity for inputs of {list(shape)}")
    alone = module(noise[:1].clone())
    _examine_shape(alone, noise[:1])
    if not torch.allclose(alone, module(noise.clone())[:1], rtol=1e-3, atol=1e-4):
        raise _fault("gives another output for a sample if others are beside it in the batch")


def _examine_shape(found: object, x: Tensor) -> None:
    if not isinstance(found, Tensor):
        raise _fault(f"returns {_a(found)}, not a tensor")
    if len(found.shape) == 0 or len(found) != len(x):
        raise _fault(f"does not keep the batch: {list(found.shape)} for inputs of {list(x.shape)}")
    if found.shape != x.shape:
        raise _fault(
            f"does not preserve the shape: {list(found.shape)} for inputs of {list(x.shape)}"
        )
    if found.dtype != x.dtype:
        raise _fault(f"gives numbers of type {found.dtype}, expected {x.dtype}")


def _examine_gradient(module: nn.Module, shape: Shape) -> None:
    x = _noise(shape)
    found = module(x)
    _examine_shape(found, x)
    learning = {name: p for name, p in module.named_parameters() if p.requires_grad}
    reached: set[str] = set()
    if found.requires_grad and learning:
        goal = (found * _noise(shape)).sum()
        gradients = torch.autograd.grad(goal, list(learning.values()), allow_unused=True)
        reached = {n for n, g in zip(learning, gradients, strict=True) if g is not None}
    for name, _ in module.named_parameters():
        if name not in reached:
            raise _fault(f"lets no gradient reach its parameter {name!r}: it would never learn")


def _noise(shape: Shape) -> Tensor:
    return torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(0))


def _fault(what: str) -> ModelError:
    return ModelError(f"the extractor {what}")


def _a(thing: object) -> str:
    return f"something of type {type(thing).__name__}"
