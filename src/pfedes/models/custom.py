"""Builds a user's own model, tries it once, and adapts it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pfedes.core.shapes import Shape
from pfedes.errors import ModelError, kind_and_text
from pfedes.imports import own_function
from pfedes.models import MODELS, build_model
from pfedes.models.head import remember_head


def participants_model(name: str, classes: int, shape: Shape, head: str = "") -> nn.Module:
    """The model that `model = name` stands for; it returns logits, and its head is known."""
    if name in MODELS:
        return build_model(name, classes, shape)
    function = own_function(name, "model")
    try:
        model = function(classes, shape)
    except Exception as error:  # it is the user's, and may raise anything
        raise ModelError(
            f"model = {name!r} failed for {classes} classes and inputs of {_by(shape)}: "
            f"{kind_and_text(error)}; it is called with these two, and must build the model"
        ) from None
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"model = {name!r} returned {_kind(model)}: it must return a torch.nn.Module"
        )
    fit_in(model, classes, shape, head)
    return model


def fit_in(model: nn.Module, classes: int, shape: Shape, head: str = "") -> None:
    """Makes a model return logits alone, and finds its head; or says what to write."""
    with _listening(model) as heard:
        output = _tried(model, shape)
    if (key := _where_logits_are(output)) is not None:
        model.register_forward_hook(lambda _, __, result: _logits(result, key))
        output = _logits(output, key)
    _check_logits(output, classes)
    if head:
        remember_head(model, head, named=True)
        return
    ends = [
        name
        for name, result in heard
        if result.shape == output.shape and result.data_ptr() == output.data_ptr()
    ]
    remember_head(model, ends[-1] if ends else "")


def _tried(model: nn.Module, shape: Shape) -> Any:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return model(torch.zeros(2, *shape))
    except Exception as error:  # it is the user's, and may raise anything
        raise ModelError(
            f"the model cannot take a batch of 2 inputs of {_by(shape)}: "
            f"{kind_and_text(error)}; size its layers by the shape that its function is given"
        ) from None
    finally:
        model.train(was_training)


@contextmanager
def _listening(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """Records the output of every linear layer while the model is tried."""
    heard: list[tuple[str, Tensor]] = []
    handles = [
        module.register_forward_hook(lambda _, __, result, name=name: heard.append((name, result)))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()


def _where_logits_are(output: Any) -> str | None:
    """The attribute or key of a result that is more than a tensor; None for a tensor."""
    if isinstance(output, Tensor):
        return None
    if isinstance(output, dict) and "logits" in output:
        return "logits"
    if isinstance(getattr(output, "logits", None), Tensor):
        return "logits"
    what = _kind(output)
    if isinstance(output, tuple | list):
        what = f"a {type(output).__name__} of {len(output)}"
    raise ModelError(
        f"the model returns {what}: it must return the logits alone, or something with a field "
        "'logits'; write a module whose forward returns only them"
    )


def _logits(result: Any, key: str) -> Any:
    return result[key] if isinstance(result, dict) else getattr(result, key)


def _check_logits(output: Any, classes: int) -> None:
    if not isinstance(output, Tensor):
        raise ModelError(f"the model's logits are {_kind(output)}, not a tensor")
    if output.shape != (2, classes):
        raise ModelError(
            f"the model answers a batch of 2 with a tensor of {_by(tuple(output.shape))}, expected "
            f"2 x {classes}: one number for each of the federation's classes"
        )
    if not output.is_floating_point():
        raise ModelError(f"the model's logits are {output.dtype}, expected floating point")


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
