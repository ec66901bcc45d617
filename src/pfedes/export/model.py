"""A classifier in plain PyTorch.

    python model.py image.png ...

prints what images show, if it was trained on images and the network is one of those below; for a
participant's own network see README.md. Needs torch, safetensors, numpy and pillow, and two files
that lie beside this one: model.safetensors (the weights) and config.json (the network's sizes, the
names of the classes, and how inputs become what the network takes).

Written by pfedes; Apache-2.0.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

HERE = Path(__file__).parent
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")  # none starts a program


class CNN(nn.Module):
    """Two convolutions and three linear layers."""

    def __init__(self, shape: list[int], conv2: int, fc1: int, fc2: int, classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
        self.conv1 = nn.Conv2d(channels, 16, 5)
        self.conv2 = nn.Conv2d(16, conv2, 5)
        self.fc1 = nn.Linear(conv2 * rows * columns, fc1)
        self.fc2 = nn.Linear(fc1, fc2)
        self.fc3 = nn.Linear(fc2, classes)

    def represent(self, x: Tensor) -> Tensor:
        """What the last layer classifies."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return F.relu(self.fc2(x))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc3(self.represent(x))
        return logits


class NearestPrototype(nn.Module):
    """Classifies by the nearest mean representation of a class: a logit is minus its distance."""

    def __init__(self, model: CNN, labels: list[int]) -> None:
        super().__init__()
        self.model = model
        self.labels = labels
        self.prototypes: Tensor
        self.register_buffer("prototypes", torch.zeros(len(labels), model.fc3.in_features))

    def distances(self, representation: Tensor) -> Tensor:
        return torch.cdist(representation, self.prototypes)

    def forward(self, x: Tensor) -> Tensor:
        distances = self.distances(self.model.represent(x))
        logits = distances.new_full((x.shape[0], self.model.fc3.out_features), -torch.inf)
        logits[:, self.labels] = -distances
        return logits


class Fused(nn.Module):
    """Classifies what a linear layer makes of the representations of two networks."""

    def __init__(self, model: CNN, small: CNN) -> None:
        super().__init__()
        self.model = model
        self.small = small
        width = model.fc3.in_features
        self.projector = nn.Linear(small.fc3.in_features + width, width)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([self.small.represent(x), self.model.represent(x)], dim=1)
        logits: Tensor = self.model.fc3(self.projector(both))
        return logits


def read_config(directory: Path | str = HERE) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(Path(directory, "config.json").read_text("utf-8"))
    return config


def load(directory: Path | str = HERE, network: nn.Module | None = None) -> nn.Module:
    """The network with its weights, ready to be used. It takes what `prepare` gives.

    A network that config.json has no sizes of is somebody's own: build it by their code.
    """
    config = read_config(directory)
    if config["architecture"] is not None:
        network = CNN(**config["architecture"])
        if config["nearest_prototype"] is not None:
            network = NearestPrototype(network, config["nearest_prototype"])
        elif config["fused_with"] is not None:
            network = Fused(network, CNN(**config["fused_with"]))
    elif network is None:
        sizes = f"{len(config['class_names'])}, {tuple(config['shape'])}"
        raise ValueError(f"give load() the network that {config['model']} builds for ({sizes})")
    network.load_state_dict(load_file(Path(directory, "model.safetensors")))
    if len(config["shape"]) == 3:
        # The layout in memory in which it was trained: results then agree to the last bit.
        # (torch's own annotations do not know this form of the call.)
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.eval()


def prepare(inputs: Tensor, config: dict[str, Any]) -> Tensor:
    """What the network takes: numbers (n, ...), or pixels 0..255 (n, height, width, channels).

    Of pixels (pixel / 255 - mean) / std, with channels second; of numbers (number - mean) / std.
    """
    mean = torch.tensor(config["mean"], dtype=torch.float64)
    std = torch.tensor(config["std"], dtype=torch.float64)
    if config["inputs"] == "pixels":
        scale, shift = (1 / (255 * std)).float(), (-mean / std).float()
        return (inputs.float() * scale + shift).permute(0, 3, 1, 2)
    along = (-1, *[1] * (inputs.dim() - 2))
    numbers = (inputs.float() - mean.float().view(along)) / std.float().view(along)
    if numbers.dim() == 4:
        return numbers.contiguous(memory_format=torch.channels_last)
    return numbers


def read_image(image: Path | str | Image.Image, config: dict[str, Any]) -> Tensor:
    """Pixels 0..255 at the size of the training images, (1, height, width, channels)."""
    channels, height, width = config["shape"]
    if channels not in (1, 3):
        raise ValueError(f"the network takes {channels} channels, and an image has 1 or 3")
    if not isinstance(image, Image.Image):
        with Image.open(image, formats=FORMATS) as opened:
            return read_image(opened, config)
    kind = image.format  # which is lost when it is turned
    image = ImageOps.exif_transpose(image)  # as it was in training
    image = _with_bytes(image, kind).convert("L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return torch.tensor(np.asarray(image)).reshape(1, height, width, channels)


def _with_bytes(image: Image.Image, kind: str | None) -> Image.Image:
    """Of 16 bits the upper 8: convert() would cut off at 255. Of 32 bits the white is not known."""
    if image.mode == "F" or (image.mode == "I" and kind not in ("PNG", "PPM")):
        raise ValueError(
            "the image has pixels of 32 bits: save it with 8 or 16 bits, where 0 is black"
        )
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


@cache
def _ready(directory: Path | str) -> nn.Module:
    return load(directory)


def predict(
    what: Any, top: int = 1, directory: Path | str = HERE, model: nn.Module | None = None
) -> list[tuple[str, float]]:
    """The likeliest classes of an image, or of an array, with their probabilities, likeliest first.

    `what` is an image or the name of its file, for a network trained on pixels; else the numbers of
    one input. `model` is what `load` gave, and may be left out if load() needs no network.
    """
    config = read_config(directory)
    model = _ready(directory) if model is None else model
    if config["inputs"] == "pixels":
        inputs = read_image(what, config)
    else:
        inputs = torch.as_tensor(what).reshape(1, *config["shape"])
    with torch.no_grad():
        logits = _logits(model(prepare(inputs, config)))
    chances, labels = logits[0].softmax(0).topk(min(top, logits.shape[1]))
    names = [config["class_names"][label] for label in labels.tolist()]
    return list(zip(names, chances.tolist(), strict=True))


def predict_rows(
    table: Path | str, directory: Path | str = HERE, model: nn.Module | None = None
) -> list[tuple[str, float, list[str]]]:
    """The likeliest class of each row of a CSV file, its probability, and what is unusual about it.

    Columns are found by their names. For a network trained on a table, which has preprocess.json
    and preprocess.py beside this file. Raises ValueError for columns and values it cannot take.
    """
    # Lies beside this file where it was exported.
    from preprocess import Preprocess, read_csv  # type: ignore[import-not-found]

    config = read_config(directory)
    model = _ready(directory) if model is None else model
    columns = Preprocess.from_json(Path(directory, "preprocess.json").read_text("utf-8"))
    inputs, remarks = columns.encode(read_csv(table))
    with torch.no_grad():
        logits = _logits(model(prepare(torch.from_numpy(inputs), config)))
    chances, labels = logits.softmax(dim=1).max(dim=1)
    names = [config["class_names"][label] for label in labels.tolist()]
    return list(zip(names, chances.tolist(), remarks, strict=True))


def _logits(output: Any) -> Tensor:
    """Some networks return more than that."""
    if not isinstance(output, Tensor):
        output = output["logits"] if isinstance(output, dict) else output.logits
    found: Tensor = output
    return found


if __name__ == "__main__":
    for name in sys.argv[1:]:
        ((label, chance),) = predict(name)
        print(f"{name}: {label} ({chance:.4f})")
