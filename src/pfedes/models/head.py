"""A model in two parts: what makes the representation, and the head that classifies it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from pfedes.errors import ModelError

_heads: "WeakKeyDictionary[nn.Module, str]" = WeakKeyDictionary()
"""The head that was found in a user's model; not part of the model or its state."""


def remember_head(model: nn.Module, name: str, *, named: bool = False) -> None:
    """Notes which layer is the head ('' = none was found); one that the user named is checked."""
    if named:
        try:
            found = model.get_submodule(name)
        except AttributeError:
            linear = [n for n, m in model.named_modules() if isinstance(m, nn.Linear)]
            known = ", ".join(linear) or "none"
            raise ModelError(
                f"head = {name!r}: the model has no such layer; its linear layers: {known}"
            ) from None
        if not isinstance(found, nn.Linear):
            raise ModelError(f"head = {name!r} is a {type(found).__name__}, not an nn.Linear")
    _heads[model] = name


def head_of(model: nn.Module) -> nn.Linear:
    """Returns the linear layer that a model ends with.

    Args:
        model: A client's model.

    Raises:
        ModelError: No such layer could be found.
    """
    if (name := _heads.get(model)) == "":
        raise ModelError(
            f"{type(model).__name__} does not end with a linear layer that could be found: "
            "name it with head = '...'"
        )
    if name is not None:
        found = model.get_submodule(name)
        assert isinstance(found, nn.Linear), "only linear layers are remembered"
        return found
    heads = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not heads:
        raise ModelError(f"{type(model).__name__} has no linear layer to be its head")
    return heads[-1]


def head_parameters(model: nn.Module) -> frozenset[str]:
    """The names of the head's parameters in the whole model."""
    own = {id(parameter) for parameter in head_of(model).parameters()}
    return frozenset(name for name, found in model.named_parameters() if id(found) in own)


def represent(
    model: nn.Module, x: Tensor, fuse: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Runs a model once and returns its representation, the input of its head, and the logits.

    Args:
        model: A model that ends with a linear layer, its head.
        x: A batch of inputs.
        fuse: Changes the representation before the head classifies it; the changed one is returned.

    Raises:
        ModelError: The model has no linear layer that could be its head.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from pfedes.methods import represent
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> representation, logits = represent(model, torch.zeros(5, 4))
        >>> representation.shape, logits.shape
        (torch.Size([5, 3]), torch.Size([5, 2]))
    """
    with _listening(head_of(model), fuse) as heard:
        logits: Tensor = model(x)
    return heard[0], logits


@contextmanager
def _listening(head: nn.Linear, fuse: Callable[[Tensor], Tensor] | None) -> Iterator[list[Tensor]]:
    heard: list[Tensor] = []

    def hear(_: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor | None:
        heard.append(inputs[0] if fuse is None else fuse(inputs[0]))
        return None if fuse is None else heard[-1]

    handle = head.register_forward_pre_hook(hear)
    try:
        yield heard
    finally:
        handle.remove()
