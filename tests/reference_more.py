"""Naive transcriptions of FedGH, FedTGP, FedSSA, FedRE and FedMRL, beside those of `reference`.

As there: plain PyTorch, loops over lists, nothing of the library; what is random is given.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from reference import (
    Descent,
    Hyper,
    Order,
    ReferenceClient,
    Weights,
    head,
    representation,
    standalone_round,
    summed,
    trainable,
)

Prototypes = dict[int, Tensor]  # by class


def own_classes(client: ReferenceClient) -> list[int]:
    return sorted(set(client.y.tolist()))


def class_means(client: ReferenceClient) -> Prototypes:
    """The mean representation of each own class, by the model as it is now."""
    rep = representation(client.weights, client.x).detach()
    return {label: rep[client.y == label].mean(0) for label in own_classes(client)}


# --- training on the server ---


def rows_in_order(reports: dict[str, Prototypes]) -> tuple[list[Tensor], list[int]]:
    """All prototypes with their classes: by client, then by class."""
    rows, labels = [], []
    for name in sorted(reports):
        for label in sorted(reports[name]):
            rows.append(reports[name][label])
            labels.append(label)
    return rows, labels


def plain_step(weights: Weights, loss: Tensor, lr: float) -> Weights:
    """SGD without momentum, decay or clipping."""
    gradients = torch.autograd.grad(loss, list(weights.values()))
    return {
        name: (w - lr * gradient).detach().requires_grad_()
        for (name, w), gradient in zip(weights.items(), gradients, strict=True)
    }


# --- FedGH ---


def fedgh_round(
    client: ReferenceClient, shared: Weights, epochs: list[Order], hyper: Hyper
) -> Prototypes:
    client.weights |= {f"fc3.{part}": tensor for part, tensor in shared.items()}
    standalone_round(client, epochs, hyper)
    return class_means(client)


def fedgh_server(
    shared: Weights, reports: dict[str, Prototypes], epochs: list[Order], lr: float
) -> Weights:
    """The head learns the class of every prototype; the mean over a batch."""
    rows, labels = rows_in_order(reports)
    w = trainable(shared)
    for batches in epochs:
        for batch in batches:
            loss = torch.zeros(())
            for i in batch:
                logits = w["weight"] @ rows[i] + w["bias"]
                loss = loss - logits.log_softmax(0)[labels[i]] / len(batch)
            w = plain_step(w, loss, lr)
    return {name: tensor.detach() for name, tensor in w.items()}


# --- FedRE ---


def mixture(u: Tensor) -> Tensor:
    """Random numbers as weights; all zero, they weigh alike."""
    total = float(u.sum())
    return u / total if total > 0 else torch.full_like(u, 1 / len(u))


def entangled(encoding: Tensor, prototypes: Prototypes) -> Tensor:
    return sum(
        (w * prototypes[label] for w, label in zip(encoding, sorted(prototypes), strict=True)),
        start=torch.zeros(()),
    )


def soft_loss(logits: Tensor, target: Tensor) -> Tensor:
    return -(target * logits.log_softmax(0)).sum()


def fedre_server(
    shared: Weights,
    reports: dict[str, tuple[Tensor, dict[int, float]]],
    epochs: list[Order],
    lr: float,
) -> Weights:
    """The head learns the soft label of every client's representation; the sum over a batch."""
    names = sorted(reports)
    w = trainable(shared)
    for batches in epochs:
        for batch in batches:
            loss = torch.zeros(())
            for i in batch:
                rep, encoding = reports[names[i]]
                target = torch.zeros(len(w["bias"]))
                for label, weight in encoding.items():
                    target[label] = weight
                loss = loss + soft_loss(w["weight"] @ rep + w["bias"], target)
            w = plain_step(w, loss, lr)
    return {name: tensor.detach() for name, tensor in w.items()}


# --- FedTGP: its client is FedProto's ---


def trainable_prototypes(w: Weights) -> Tensor:
    """g: one row per class."""
    hidden = torch.relu(w["embedding.weight"] @ w["hidden.weight"].T + w["hidden.bias"])
    return hidden @ w["out.weight"].T + w["out.bias"]


def margin(means: Prototypes, kind: str, largest: float) -> float:
    """delta: how far the class means are apart, at most `largest`."""
    if len(means) < 2:
        return 0.0
    apart = [
        [float((mean - other).norm()) for y, other in means.items() if y != label]
        for label, mean in means.items()
    ]
    return min(max(map(min if kind == "nearest" else max, apart)), largest)


def contrast(distances: Tensor, label: int, delta: float) -> Tensor:
    """-log of the softmax of the negative distances, the own one made larger by the margin."""
    own = torch.zeros(len(distances))
    own[label] = delta
    return -(-(distances + own)).log_softmax(0)[label]


def fedtgp_server(
    weights: Weights,
    reports: dict[str, Prototypes],
    epochs: list[Order],
    lr: float,
    delta: float,
) -> Weights:
    rows, labels = rows_in_order(reports)
    w = trainable(weights)
    for batches in epochs:
        for batch in batches:
            g = trainable_prototypes(w)
            loss = torch.zeros(())
            for i in batch:
                distances = ((rows[i] - g) ** 2).sum(1).clamp_min(1e-12).sqrt()
                loss = loss + contrast(distances, labels[i], delta) / len(batch)
            w = plain_step(w, loss, lr)
    return {name: tensor.detach() for name, tensor in w.items()}


def mean_by_class(reports: dict[str, Prototypes]) -> Prototypes:
    """Q: the plain mean over those who reported a class."""
    rows, labels = rows_in_order(reports)
    return {
        label: torch.stack([r for r, y in zip(rows, labels, strict=True) if y == label]).mean(0)
        for label in set(labels)
    }


# --- FedSSA ---


def fading(mu: float, stable_rounds: int, round: int) -> float:
    """mu_t, the weight of the client's own former rows; t counts rounds from 0."""
    t = round - 1
    if stable_rounds == 0 or t > stable_rounds:
        return 0.0
    return mu * math.cos(math.pi * t / (2 * stable_rounds))


def fused(shared: Tensor, own: Tensor, mu: float, fusion: str) -> Tensor:
    return (shared if fusion == "sum" else (1 - mu) * shared) + mu * own


def fedssa_round(
    client: ReferenceClient,
    shared: dict[int, tuple[Tensor, Tensor]],
    mu: float,
    fusion: str,
    epochs: list[Order],
    hyper: Hyper,
) -> dict[int, tuple[Tensor, Tensor]]:
    """From the global rows of the own classes to the trained ones; rows are weight and bias."""
    weight = client.weights["fc3.weight"].detach().clone()
    bias = client.weights["fc3.bias"].detach().clone()
    for label in own_classes(client):
        if client.last_round == 0:  # there is no history yet
            weight[label], bias[label] = shared[label]
        else:
            weight[label] = fused(shared[label][0], weight[label].clone(), mu, fusion)
            bias[label] = fused(shared[label][1], bias[label].clone(), mu, fusion)
    client.weights |= {"fc3.weight": weight, "fc3.bias": bias}
    standalone_round(client, epochs, hyper)
    w = client.weights
    return {
        label: (w["fc3.weight"][label].detach(), w["fc3.bias"][label].detach())
        for label in own_classes(client)
    }


def fedssa_server(
    shared: dict[int, tuple[Tensor, Tensor]],
    reports: dict[str, dict[int, tuple[Tensor, Tensor]]],
    counts: dict[str, dict[int, int]],
) -> dict[int, tuple[Tensor, Tensor]]:
    """Per class, the mean over its holders of this round; counts of 1 make it plain."""
    new = dict(shared)
    for label in shared:
        holders = [name for name in reports if label in reports[name]]
        total = sum(counts[name][label] for name in holders)
        if holders:
            new[label] = (
                summed(reports[name][label][0] * (counts[name][label] / total) for name in holders),
                summed(reports[name][label][1] * (counts[name][label] / total) for name in holders),
            )
    return new


# --- FedMRL ---


def fused_representation(small: Tensor, own: Tensor, projector: Weights) -> Tensor:
    return torch.cat([small, own], 1) @ projector["weight"].T + projector["bias"]


def fedmrl_forward(own: Weights, small: Weights, projector: Weights, x: Tensor) -> Tensor:
    """The logits that count, those of the private head."""
    z = fused_representation(representation(small, x), representation(own, x), projector)
    return head(own, z)


def fedmrl_round(
    client: ReferenceClient,
    small: Weights,
    projector: Weights,
    epochs: list[Order],
    hyper: Hyper,
    small_weight: float,
) -> tuple[Weights, Weights]:
    """Returns the small model and the projector, both trained."""
    w, s, p = trainable(client.weights), trainable(small), trainable(projector)
    for_w, for_s, for_p = (Descent(hyper.lr, hyper) for _ in range(3))
    width = small["fc3.weight"].shape[1]
    for batches in epochs:
        for rows in batches:
            x, y = client.x[rows], client.y[rows]
            z = fused_representation(representation(s, x), representation(w, x), p)
            loss = F.cross_entropy(head(w, z), y)
            loss = loss + small_weight * F.cross_entropy(head(s, z[:, :width]), y)
            w, s, p = for_w.step(w, loss), for_s.step(s, loss), for_p.step(p, loss)
    client.weights = w
    return {k: t.detach() for k, t in s.items()}, {k: t.detach() for k, t in p.items()}
