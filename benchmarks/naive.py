"""pFedES as one would first write it: the program that ours is measured against.

As public research code does it: a DataLoader with transforms of single images, two forward passes,
an extractor and a model of which nothing is really frozen, deep copies of both for every client,
everything in one process. The same clients, data, batches and epochs as ours, and the same losses.
"""

import copy
import random

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from pfedes.core.client import Client
from pfedes.core.train_config import TrainConfig


class Pictures(Dataset[tuple[Tensor, int]]):
    """One picture at a time: flip, crop, to a tensor, normalise, erase."""

    def __init__(self, client: Client) -> None:
        self.pictures = [Image.fromarray(pixels) for pixels in client.train.inputs.numpy()]
        self.labels = client.train.labels.tolist()
        self.mean = torch.tensor([0.4914, 0.4822, 0.4465])[:, None, None]
        self.std = torch.tensor([0.2470, 0.2435, 0.2616])[:, None, None]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = self.pictures[index]
        if random.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        padded = Image.new("RGB", (40, 40))
        padded.paste(picture, (4, 4))
        left, top = random.randint(0, 8), random.randint(0, 8)
        cropped = padded.crop((left, top, left + 32, top + 32))
        tensor = torch.from_numpy(np.array(cropped)).permute(2, 0, 1).contiguous()
        tensor = tensor.to(torch.float32).div(255).sub(self.mean).div(self.std)
        if random.random() < 0.5:
            height, width = random.randint(4, 16), random.randint(4, 16)
            row, column = random.randint(0, 32 - height), random.randint(0, 32 - width)
            tensor[:, row : row + height, column : column + width] = 0
        return tensor, self.labels[index]


class PlainExtractor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv2(F.relu(self.conv1(x))))


class PlainCNN(nn.Module):
    """A CNN with the layers of ours, in the order of the paper."""

    def __init__(self, ours: nn.Module) -> None:
        super().__init__()
        widths = [ours.get_parameter(f"fc{i}.weight").shape for i in (1, 2, 3)]
        self.conv1 = nn.Conv2d(3, 16, 5)
        self.conv2 = nn.Conv2d(16, ours.get_parameter("conv2.weight").shape[0], 5)
        self.fc1, self.fc2, self.fc3 = (nn.Linear(inputs, outputs) for outputs, inputs in widths)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        logits: Tensor = self.fc3(F.relu(self.fc2(x)))
        return logits


def naive_round(
    clients: list[Client], train: TrainConfig, extractor_epochs: int, mu: float
) -> None:
    """The selected clients one after another, then the average."""
    received = PlainExtractor()
    uploads = [
        naive_client(copy.deepcopy(received), client, train, extractor_epochs, mu)
        for client in clients
    ]
    total = sum(len(client.train) for client in clients)
    averaged = copy.deepcopy(uploads[0])
    for name in averaged:
        shares = (
            upload[name] * len(client.train) / total
            for upload, client in zip(uploads, clients, strict=True)
        )
        averaged[name] = sum(shares, torch.zeros(()))
    received.load_state_dict(averaged)


def naive_client(
    extractor: nn.Module, client: Client, train: TrainConfig, extractor_epochs: int, mu: float
) -> dict[str, Tensor]:
    model = PlainCNN(client.model)
    loader = DataLoader(Pictures(client), batch_size=train.batch_size, shuffle=True)

    def sgd(module: nn.Module) -> torch.optim.SGD:
        return torch.optim.SGD(
            module.parameters(),
            lr=train.lr,
            momentum=train.momentum,
            weight_decay=train.weight_decay,
        )

    model_optimiser = sgd(model)
    extractor_optimiser = sgd(extractor)

    for _ in range(train.epochs):
        for x, y in loader:
            enhanced = model(extractor(x))
            raw = model(x)
            loss = mu * F.cross_entropy(enhanced, y) + (1 - mu) * F.cross_entropy(raw, y)
            model_optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), train.clip)
            model_optimiser.step()
    for _ in range(extractor_epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(extractor(x)), y)
            extractor_optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(extractor.parameters(), train.clip)
            extractor_optimiser.step()
    _evaluate(model, client)
    return copy.deepcopy(extractor.state_dict())


@torch.no_grad()
def _evaluate(model: nn.Module, client: Client) -> int:
    model.eval()
    return sum(
        int((model(batch.x).argmax(1) == batch.y).sum())
        for samples in (client.val, client.test)
        for batch in samples.in_order(512)
    )
