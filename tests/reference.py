"""Naive transcriptions of Algorithm 1 and of the baselines in plain PyTorch: the oracle.

No cleverness and no code shared with the library: two forward passes, a hand-written SGD, loops
over lists. What is random (initial weights, order of samples) is given from outside.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Weights = dict[str, Tensor]
Order = list[list[int]]  # an epoch's batches, as sample numbers


def summed(tensors: Iterable[Tensor]) -> Tensor:
    return sum(tensors, torch.zeros(()))


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
    """Weights of a private model, all training images and labels, and FedKD's private parts."""

    weights: Weights
    x: Tensor
    y: Tensor
    w_h: Tensor | None = None
    mentee: Weights | None = None
    last_round: int = 0


def representation(w: Weights, x: Tensor) -> Tensor:
    x = F.max_pool2d(torch.relu(F.conv2d(x, w["conv1.weight"], w["conv1.bias"])), 2)
    x = F.max_pool2d(torch.relu(F.conv2d(x, w["conv2.weight"], w["conv2.bias"])), 2)
    x = x.reshape(len(x), -1)
    x = torch.relu(x @ w["fc1.weight"].T + w["fc1.bias"])
    return torch.relu(x @ w["fc2.weight"].T + w["fc2.bias"])


def head(w: Weights, rep: Tensor) -> Tensor:
    return rep @ w["fc3.weight"].T + w["fc3.bias"]


def model_forward(w: Weights, x: Tensor) -> Tensor:
    return head(w, representation(w, x))


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
        gradients = torch.autograd.grad(loss, list(weights.values()), retain_graph=True)
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
        name: summed(
            t[name] * (n / total) for t, n in zip(extractors, samples, strict=True)
        ).detach()
        for name in extractors[0]
    }


def weights_of(module: nn.Module) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of rows of probabilities, mean over rows."""
    return (p * (p.log() - q.log())).sum(1).mean()


def fml_round(
    client: ReferenceClient,
    meme: Weights,
    epochs: list[Order],
    hyper: Hyper,
    alpha: float,
    beta: float,
) -> Weights:
    w, m = trainable(client.weights), trainable(meme)
    for_w, for_m = Descent(hyper.lr, hyper), Descent(hyper.lr, hyper)
    for batches in epochs:
        for rows in batches:
            x, y = client.x[rows], client.y[rows]
            own, shared = model_forward(w, x), model_forward(m, x)
            p, q = own.softmax(1), shared.softmax(1)
            loss_own = alpha * F.cross_entropy(own, y) + (1 - alpha) * kl(q.detach(), p)
            loss_meme = beta * F.cross_entropy(shared, y) + (1 - beta) * kl(p.detach(), q)
            w, m = for_w.step(w, loss_own), for_m.step(m, loss_meme)
    client.weights = w
    return m


def fedkd_round(
    client: ReferenceClient, mentee: Weights, epochs: list[Order], hyper: Hyper, floor: float
) -> Weights:
    """Returns the change of the mentee."""
    assert client.w_h is not None
    w, s, h = trainable(client.weights), trainable(mentee), trainable({"w_h": client.w_h})
    for_w, for_s, for_h = (Descent(hyper.lr, hyper) for _ in range(3))
    for batches in epochs:
        for rows in batches:
            x, y = client.x[rows], client.y[rows]
            rep_t, rep_s = representation(w, x), representation(s, x)
            out_t, out_s = head(w, rep_t), head(s, rep_s)
            p, q = out_t.softmax(1), out_s.softmax(1)
            ce_t, ce_s = F.cross_entropy(out_t, y), F.cross_entropy(out_s, y)
            a = 1 / max(ce_t.item() + ce_s.item(), floor)
            mapped = rep_s @ h["w_h"].T
            loss_t = ce_t + a * kl(q.detach(), p) + a * ((rep_t - mapped.detach()) ** 2).mean()
            loss_s = ce_s + a * kl(p.detach(), q) + a * ((rep_t.detach() - mapped) ** 2).mean()
            w, s, h = for_w.step(w, loss_t), for_s.step(s, loss_s), for_h.step(h, loss_s)
    client.weights, client.w_h = w, h["w_h"].detach()
    return {name: (s[name] - mentee[name]).detach() for name in s}


def low_rank(change: Weights, energy: float) -> tuple[Weights, int]:
    """The change after compression and expansion, and the floats it takes to send it."""
    result, floats = {}, 0
    for name, tensor in change.items():
        result[name] = tensor
        cost = tensor.numel()
        if tensor.dim() > 1:
            matrix = tensor.reshape(len(tensor), -1)
            u, sigma, vt = torch.linalg.svd(matrix, full_matrices=False)
            total = float((sigma.double() ** 2).sum())
            rank, found = 0, 0.0
            while found < energy * total:
                found += float(sigma[rank].double() ** 2)
                rank += 1
            compressed = rank * (sum(matrix.shape) + 1)
            if compressed < cost:
                cost = compressed
                low = u[:, :rank] @ torch.diag(sigma[:rank]) @ vt[:rank]
                result[name] = low.reshape(tensor.shape)
        floats += cost
    return result, floats


def fd_round(
    client: ReferenceClient,
    targets: dict[int, Tensor],
    epochs: list[Order],
    hyper: Hyper,
    gamma: float,
) -> dict[int, Tensor]:
    """Returns the mean softmax output of each label in the last epoch."""
    w = trainable(client.weights)
    descent = Descent(hyper.lr, hyper)
    seen: dict[int, list[Tensor]] = {}
    for batches in epochs:
        seen = {}
        for rows in batches:
            x, y = client.x[rows], client.y[rows]
            out = model_forward(w, x)
            loss = F.cross_entropy(out, y)
            for i, label in enumerate(y.tolist()):
                seen.setdefault(label, []).append(out[i].softmax(0).detach())
                if label in targets:
                    soft = -(targets[label] * out[i].softmax(0).log()).sum()
                    loss = loss + gamma * soft / len(y)
            w = descent.step(w, loss)
    client.weights = w
    return {label: torch.stack(rows).mean(0) for label, rows in seen.items()}


def fedproto_round(
    client: ReferenceClient,
    prototypes: dict[int, Tensor],
    epochs: list[Order],
    hyper: Hyper,
    weight: float,
) -> dict[int, Tensor]:
    """Returns the mean representation of each class after training."""
    w = trainable(client.weights)
    descent = Descent(hyper.lr, hyper)
    for batches in epochs:
        for rows in batches:
            x, y = client.x[rows], client.y[rows]
            rep = representation(w, x)
            loss = F.cross_entropy(head(w, rep), y)
            for i, label in enumerate(y.tolist()):
                if label in prototypes:
                    loss = loss + weight * ((rep[i] - prototypes[label]) ** 2).mean() / len(y)
            w = descent.step(w, loss)
    client.weights = w
    rep = representation(w, client.x).detach()
    return {label: rep[client.y == label].mean(0) for label in set(client.y.tolist())}
