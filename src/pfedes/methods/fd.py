"""FD, Federated Distillation: clients share their mean answers, label by label.

Jeong et al., Communication-Efficient On-Device Machine Learning: Federated Distillation and
Augmentation under Non-IID Private Data, 2018.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from pfedes.core.aggregation import Averaging, Voices, bounded
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Max, Payload, State, TensorSpec, Value, whole
from pfedes.core.samples import Batch
from pfedes.core.training import Learner, fit, label_loss, survey
from pfedes.core.wire import Labels, WireSpec, required
from pfedes.methods._class_means import ClassMeans, LabelTable, MeansTaken, weighted_mean
from pfedes.methods.base import Method, MethodConfig, Received, Upload, Wire


class FDConfig(MethodConfig):
    """Hyper-parameters of FD."""

    name: Literal["fd"] = "fd"
    gamma: float = Field(1.0, ge=0, description="gamma, weight of the others' mean answers")
    statistics: MeansTaken = Field(
        "last_epoch", description="means taken in the last_epoch | in a pass after training"
    )
    averaging: Averaging = Field("uniform", description="uniform (the original) | weighted")


class FD(Method[FDConfig]):
    """A client learns from the labels and from other clients' mean answers on the same labels."""

    Config = FDConfig
    needs = frozenset({"classes"})

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        """Sends, for each of the client's labels, the mean answer of others that reported it."""
        labels, targets = [], []
        for label in sorted(card.classes or {}):
            others = [
                (tensor, whole(state.meta[name]))
                for name, tensor in state.tensors.items()
                if _label(name) == label and _client(name) != card.name
            ]
            if others:
                counts = [1] * len(others)
                if self.config.averaging == "weighted":
                    # Bounded once more: without this client's own report shares are others.
                    counts = bounded([count for _, count in others], ctx.max_share)
                labels.append(label)
                targets.append(weighted_mean([answers for answers, _ in others], counts))
        rows = torch.stack(targets) if targets else torch.zeros(0, ctx.classes)
        return Payload({"targets": rows}, {"labels": labels})

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        targets = LabelTable(download, "targets", ctx.classes)
        means = ClassMeans(ctx.classes, ctx.classes)

        def loss(batch: Batch) -> Tensor:
            logits = client.model(batch.x)
            means.see(batch.y, logits.detach().softmax(dim=1, dtype=torch.float32))
            return distilled_loss(logits, batch, targets, self.config.gamma)

        value = fit(
            client,
            {"model": Learner(client.model, ctx.train.lr)},
            loss,
            epochs=ctx.train.epochs,
            ctx=ctx,
            epoch_begins=means.forget,
        )
        if self.config.statistics == "pass":
            means.forget()
            survey(
                client,
                client.model,
                lambda batch: means.see(batch.y, client.model(batch.x).softmax(dim=1)),
                batch_size=ctx.train.batch_size,
            )
        labels, outputs = means.rows()
        return Upload(value, {"outputs": outputs}, {"labels": labels})

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        """Keeps, for each label, the reports of the latest round in which anyone reported it."""
        fresh: dict[str, Tensor] = {}
        seen: dict[int, dict[str, int]] = {}
        for upload in uploads:
            labels = upload.payload.meta["labels"]
            assert isinstance(labels, list)
            for label, row in zip(labels, upload.payload.tensors["outputs"], strict=True):
                fresh[f"{label}/{upload.card.name}"] = row
                held = (upload.card.classes or {})[int(label)]
                seen.setdefault(int(label), {})[upload.card.name] = held
        old = {n: t for n, t in state.tensors.items() if _label(n) not in seen}
        counts = {name: state.meta[name] for name in old} | self._counts(seen, ctx)
        return State({**old, **fresh}, {name: counts[name] for name in {**old, **fresh}})

    def _counts(self, seen: Mapping[int, Mapping[str, int]], ctx: Context) -> dict[str, Value]:
        """How many samples of a label count for each client that reported it."""
        if self.config.averaging == "uniform":
            return {f"{y}/{name}": n for y, held in seen.items() for name, n in held.items()}
        voices, counts = Voices(ctx.max_share), dict[str, Value]()
        for label, held in seen.items():
            kept = voices.among(held)
            counts |= {f"{label}/{name}": n for name, n in zip(held, kept, strict=True)}
        voices.log(ctx.round)
        return counts

    def allowed(self, card: Card, ctx: Context) -> Wire:
        own = frozenset(card.classes or {})
        down = required({"targets": TensorSpec((Max(len(own)), ctx.classes))})
        up = required({"outputs": TensorSpec((len(own), ctx.classes), least=0, most=1)})
        return Wire(
            down=WireSpec((down,), {"labels": Labels("targets", own)}),
            up=WireSpec((up,), {"labels": Labels("outputs", own)}),
        )


def distilled_loss(logits: Tensor, batch: Batch, targets: LabelTable, gamma: float) -> Tensor:
    """CE + gamma * soft CE against the target of the label; no second term where there is none."""
    loss = label_loss(logits, batch)
    if not gamma or not len(targets):
        return loss
    wanted, known = targets.lookup(batch.y)
    answers = F.log_softmax(logits, dim=1, dtype=torch.float32)  # logits may be bf16
    soft = -(wanted * answers).sum(dim=1)
    return loss + gamma * (soft * known).mean()


def _label(report: str) -> int:
    return int(report.partition("/")[0])


def _client(report: str) -> str:
    return report.partition("/")[2]
