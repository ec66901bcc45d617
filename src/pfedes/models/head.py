"""A model in two parts: what makes the representation, and the head that classifies it."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from pfedes.errors import ModelError


def head_of(model: nn.Module) -> nn.Linear:
    """The linear layer that a model ends with."""
    heads = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not heads:
        raise ModelError(f"{type(model).__name__} has no linear layer to be its head")
    return heads[-1]


def represent(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The representation, which is the input of the head, and the logits, from one pass."""
    with _listening(head_of(model)) as heard:
        logits: Tensor = model(x)
    return heard[0], logits


@contextmanager
def _listening(head: nn.Linear) -> Iterator[list[Tensor]]:
    heard: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
    try:
        yield heard
    finally:
        handle.remove()
