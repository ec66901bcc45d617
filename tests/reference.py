"""A naive Algorithm 1 in plain PyTorch, the oracle for the library.

No cleverness and no code shared with the library: two forward passes, a hand-written SGD, loops
over lists. What is random (initial weights, order of samples) is given from outside.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Weights = dict[str, Tensor]
Order = list[list[int]]  # an epoch's batches, as sample numbers


@dataclass
class Hyper:
    mu: float
    lr: float
    extractor_lr: float
    momentum: float
    weight_decay: float
    clip: float


@dataclass
class ReferenceClient:
    """Weights of a private model, all training images and labels."""

    weights: Weights
    x: Tensor
    y: Tensor


def model_forward(w: Weights, x: Tensor) -> Tensor:
    x = F.max_pool2d(torch.relu(F.conv2d(x, w["conv1.weight"], w["conv1.bias"])), 2)
    x = F.max_pool2d(torch.relu(F.conv2d(x, w["conv2.weight"], w["conv2.bias"])), 2)
    x = x.reshape(len(x), -1)
    x = torch.relu(x @ w["fc1.weight"].T + w["fc1.bias"])
    x = torch.relu(x @ w["fc2.weight"].T + w["fc2.bias"])
    return x @ w["fc3.weight"].T + w["fc3.bias"]


def extractor_forward(theta: Weights, x: Tensor) -> Tensor:
    x = torch.relu(F.conv2d(x, theta["conv1.weight"], theta["conv1.bias"], padding=1))
    return torch.relu(F.conv2d(x, theta["conv2.weight"], theta["conv2.bias"], padding=1))


class Descent:
    """SGD with momentum, weight decay and clipping of the whole gradient, written out."""

    def __init__(self, lr: float, hyper: Hyper) -> None:
        self.lr = lr
        self.hyper = hyper
        self.velocity: Weights = {}

    def step(self, weights: Weights, loss: Tensor) -> Weights:
        gradients = torch.autograd.grad(loss, list(weights.values()))
        norm = sum(float((g.double() ** 2).sum()) for g in gradients) ** 0.5
        shrink = min(1.0, self.hyper.clip / (norm + 1e-6))
        new: Weights = {}
        for (name, w), gradient in zip(weights.items(), gradients, strict=True):
            g = gradient * shrink + self.hyper.weight_decay * w
            v = self.velocity[name] * self.hyper.momentum + g if name in self.velocity else g
            self.velocity[name] = v
            new[name] = (w - self.lr * v).detach().requires_grad_()
        return new


def trainable(weights: Weights) -> Weights:
    return {name: w.detach().clone().requires_grad_() for name, w in weights.items()}


def standalone_round(client: ReferenceClient, epochs: list[Order], hyper: Hyper) -> None:
    w = trainable(client.weights)
    descent = Descent(hyper.lr, hyper)
    for batches in epochs:
        for rows in batches:
            x, y = client.x[rows], client.y[rows]
            w = descent.step(w, F.cross_entropy(model_forward(w, x), y))
    client.weights = w


def pfedes_round(
    client: ReferenceClient,
    theta: Weights,
    model_epochs: list[Order],
    extractor_epochs: list[Order],
    hyper: Hyper,
) -> Weights:
    """Algorithm 1, ClientUpdate: returns the client's extractor."""
    # Freeze extractor, train model.
    w = trainable(client.weights)
    descent = Descent(hyper.lr, hyper)
    for batches in model_epochs:
        for rows in batches:
            x, y = client.x[rows], client.y[rows]
            enhanced = extractor_forward(theta, x)
            loss1 = F.cross_entropy(model_forward(w, enhanced), y)
            loss2 = F.cross_entropy(model_forward(w, x), y)
            w = descent.step(w, hyper.mu * loss1 + (1 - hyper.mu) * loss2)
    client.weights = w
    # Freeze model, train extractor.
    t = trainable(theta)
    descent = Descent(hyper.extractor_lr, hyper)
    for batches in extractor_epochs:
        for rows in batches:
            x, y = client.x[rows], client.y[rows]
            t = descent.step(t, F.cross_entropy(model_forward(w, extractor_forward(t, x)), y))
    return t


def average(extractors: list[Weights], samples: list[int]) -> Weights:
    """The sample-weighted mean."""
    total = sum(samples)
    return {
        name: sum(t[name] * (n / total) for t, n in zip(extractors, samples, strict=True)).detach()  # type: ignore[union-attr]
        for name in extractors[0]
    }


def weights_of(module: nn.Module) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
