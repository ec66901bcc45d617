"""A client's model as files that need no pfedes: weights, a network to load them, a model card."""

import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from pfedes.data.dataset import Progress, silent
from pfedes.errors import ModelError, StoreError, said
from pfedes.export.card import card
from pfedes.export.model import load
from pfedes.files import appearing
from pfedes.methods.fedmrl import Fused
from pfedes.methods.fedproto import NearestPrototype
from pfedes.models.cnn import CNN
from pfedes.models.views import BothViews
from pfedes.results.personal import PersonalModel

FORMAT = 1
SAMPLES = 16  # inputs on which the written model is compared with the original


def export_model(
    personal: PersonalModel,
    directory: Path | str,
    *,
    onnx: bool = False,
    progress: Progress = silent,
) -> Path:
    """Writes a client's model as files that work without pfedes.

    The directory appears only after the files have been loaded again and predict as the model does.

    Args:
        personal: The model, from `Run.personal`.
        directory: The directory to create.
        onnx: Whether to write `model.onnx` as well, which needs the extra `onnx`.
        progress: Called with a label, the number of steps done and their total.

    Returns:
        The directory.

    Raises:
        ConfigError: The model cannot be exported, the directory exists, or an extra is missing.
    """
    directory = Path(directory)
    if onnx:
        from pfedes.export.onnx import check_extra

        check_extra()
    check_place(directory)
    config = _config(personal)
    source = files("pfedes.export").joinpath("model.py").read_bytes()
    with appearing(directory) as work:
        _write(work / "model.safetensors", _weights(personal.model))
        _write(work / "config.json", json.dumps(config, indent=2).encode())
        _write(work / "model.py", source)
        if personal.table is not None:
            columns = files("pfedes.data").joinpath("preprocess.py").read_bytes()
            _write(work / "preprocess.py", columns)
            _write(work / "preprocess.json", personal.table.to_json().encode())
        plain, noise = _loaded(personal, work), _noise(personal)
        _check_alike(personal, plain, noise)
        difference = None
        if onnx:
            from pfedes.export.onnx import write_onnx

            progress("writing ONNX", 0, 1)
            place = work / "model.onnx"
            difference = write_onnx(plain, personal.prepare, noise, place, personal.table)
            progress("writing ONNX", 1, 1)
        _write(work / "README.md", card(personal, SAMPLES, difference).encode())
    return directory


def check_place(directory: Path) -> None:
    """A new directory, or an empty one."""
    try:
        taken = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    except OSError as error:
        raise StoreError(f"{directory} cannot be read: {error.strerror}") from None
    if taken:
        raise StoreError(f"{directory} is there already: choose a new directory")


def _write(path: Path, data: bytes) -> None:
    """Writes files with the user's default permissions, because they are made to be shared."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _config(personal: PersonalModel) -> dict[str, Any]:
    """The values that `model.py` needs besides the weights."""
    model, nearest, beside = personal.model, None, None
    if isinstance(model, BothViews):
        raise ModelError(
            f"{personal.facts.client} predicts with two passes (method.inference = 'both'), which "
            "exported files cannot hold; 'pfedes predict' and Run.model use both"
        )
    # Exactly these: a class derived from one may compute something else.
    if type(model) is NearestPrototype:
        model, nearest = model.model, model.labels
    elif type(personal.model) is Fused:
        model, beside = personal.model.model, _sizes(personal.model.small, personal)
    architecture = _sizes(model, personal) if type(model) is CNN else None
    if architecture is None and (personal.untrained is None or model is not personal.model):
        raise ModelError(
            f"{personal.facts.client} predicts with a {type(personal.model).__name__}, and only "
            "a client's own network can be exported; use Run.model in Python"
        )
    return {
        "format": FORMAT,
        "model": personal.facts.architecture,
        "architecture": architecture,
        "nearest_prototype": nearest,
        "fused_with": beside,
        "class_names": list(personal.class_names),
        "inputs": "pixels" if personal.sees_pictures else "numbers",
        "shape": list(personal.shape),
        "mean": list(personal.prepare.mean),
        "std": list(personal.prepare.std),
    }


def _sizes(network: CNN, personal: PersonalModel) -> dict[str, Any]:
    """The sizes from which `model.py` builds the network."""
    return {
        "shape": list(personal.shape),
        "conv2": network.conv2.out_channels,
        "fc1": network.fc1.out_features,
        "fc2": network.fc2.out_features,
        "classes": network.fc3.out_features,
    }


def _loaded(personal: PersonalModel, directory: Path) -> nn.Module:
    """The model as a user of the files loads it."""
    if personal.untrained is None:
        return load(directory)
    try:
        return load(directory, personal.untrained())
    except RuntimeError as error:  # names or shapes differ
        raise ModelError(
            f"{personal.facts.architecture} no longer builds the network that "
            f"{personal.facts.client} trained: {said(error)}"
        ) from None


def _weights(model: nn.Module) -> bytes:
    # Own memory in the usual order: safetensors takes neither views nor other layouts.
    state = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }
    return save(state, metadata={"format": "pt"})


def _check_alike(personal: PersonalModel, plain: nn.Module, noise: Tensor) -> None:
    """Refuses to export files that do not give the same predictions."""
    inputs = personal.prepare(noise)
    with torch.no_grad():
        if not torch.allclose(plain(inputs), personal.model(inputs), rtol=1e-5, atol=1e-5):
            raise ModelError(
                f"the exported model of {personal.facts.client} does not give the original's "
                "predictions"
            )


def _noise(personal: PersonalModel) -> Tensor:
    """Inputs without meaning, always the same."""
    generator = torch.Generator().manual_seed(0)
    if not personal.sees_pictures:
        return torch.randn((SAMPLES, *personal.shape), generator=generator)
    channels, height, width = personal.shape
    size = (SAMPLES, height, width, channels)
    return torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
