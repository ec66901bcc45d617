"""FedKD: a shared mentee learns beside everybody's mentor, and travels compressed.

Wu et al., Communication-efficient federated learning via knowledge distillation, 2022. The mentor
is the client's own model; the mentee is shared, and what travels are low-rank updates of it.
"""

from collections.abc import Sequence
from typing import Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from pfedes.core.aggregation import Averaging, Tensors, combine
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State, TensorSpec, under, within
from pfedes.core.samples import Batch
from pfedes.core.train_config import TrainConfig
from pfedes.core.training import Learner, fit, label_loss
from pfedes.core.wire import Group, WireSpec
from pfedes.methods import _low_rank as low_rank
from pfedes.methods import _shared_model as shared_model
from pfedes.methods._distillation import kl_from
from pfedes.methods._shared_model import SharedModel
from pfedes.methods.base import Method, MethodConfig, Problem, Received, Upload, Wire, weights
from pfedes.models.head import head_of, represent

FULL, UPDATE = "full/", "update/"


class FedKDConfig(MethodConfig):
    """Hyper-parameters of FedKD."""

    name: Literal["fedkd"] = "fedkd"
    mentee_lr: float = Field(0.01, gt=0, description="learning rate of the mentee and of W_h")
    shared_model: SharedModel = Field(
        "auto", description="the mentee: auto (cnn1 or cnn5) or a model's name"
    )
    compression: bool = Field(True, description="send low-rank updates where they are smaller")
    energy_start: float = Field(0.95, gt=0, le=1, description="T_start, energy kept at first")
    energy_end: float = Field(0.98, gt=0, le=1, description="T_end, energy kept at last")
    schedule_rounds: int = Field(
        0, ge=0, description="rounds from T_start to T_end; 0 = train.rounds when the run is made"
    )
    weight_floor: float = Field(
        0.1, ge=0, description="bounds the adaptive weight 1 / (CE_t + CE_s); 0 = original"
    )
    grad_through_weight: bool = Field(
        False, description="let gradients pass through that weight, as the original does"
    )
    averaging: Averaging = Field("weighted", description="weighted (by samples) | uniform")

    def settled(self, train: TrainConfig) -> Self:
        return self.model_copy(update={"schedule_rounds": self.schedule_rounds or train.rounds})


class FedKD(Method[FedKDConfig]):
    """Every copy of the mentee goes through the same updates and so stays the same.

    A client that took part in the last aggregated round is sent the update since then; one that
    missed it is sent the whole mentee.
    """

    Config = FedKDConfig

    @property
    def averages_parameters(self) -> bool:
        return True

    def check(self, cards: Sequence[Card], ctx: Context) -> list[Problem]:
        return shared_model.check_shapes(cards)

    def start(self, cards: Sequence[Card], ctx: Context) -> State:
        return State(under(FULL, self._mentee(cards[0], ctx).state_dict()), {"round": 0})

    def prepare(self, client: Client, ctx: Context) -> None:
        """Creates W_h, which maps the mentee's representation to the mentor's and never leaves."""
        mentee = self._mentee(client, ctx)
        with ctx.streams.ambient("init.w_h", client=client.name):
            w_h = _projection(client.model, mentee)
        client.kept["w_h"] = w_h.weight.detach()

    def download(self, state: State, card: Card, ctx: Context) -> Payload:
        took_part = 0 < card.accepted == state.meta["round"]
        part = UPDATE if took_part and self.config.compression else FULL
        return Payload({n: t for n, t in state.tensors.items() if n.startswith(part)})

    def client_round(self, client: Client, download: Payload, ctx: Context) -> Upload:
        mentee = self._mentee(client, ctx).to(client.device)
        received = _received(download, client.kept, mentee)
        mentee.load_state_dict(received)
        w_h = _projection(client.model, mentee).to(client.device)
        w_h.load_state_dict({"weight": client.kept["w_h"]})
        lr, mentee_lr = ctx.train.lr, self.config.mentee_lr
        loss = fit(
            client,
            {
                "model": Learner(client.model, lr),
                "mentee": Learner.of_received(mentee, mentee_lr),
                "w_h": Learner(w_h, mentee_lr),
            },
            lambda batch: mentor_and_mentee_losses(client.model, mentee, w_h, batch, self.config),
            epochs=ctx.train.epochs,
            ctx=ctx,
        )
        client.kept |= {"w_h": w_h.weight.detach(), **under("mentee.", received)}
        change = {name: t - received[name] for name, t in mentee.state_dict().items()}
        if self.config.compression:
            client.meter.add(low_rank.flops(change))
        return Upload(loss, self._packed(change, ctx))

    def aggregate(self, state: State, uploads: Sequence[Received], ctx: Context) -> State:
        """Adds the mean update after compressing it again, as the clients will add it."""
        full = within(FULL, state.tensors)
        shapes = _shapes(full)
        shares = weights(uploads, ctx, self.config.averaging)
        changes = [low_rank.expand(within(UPDATE, u.payload.tensors), shapes) for u in uploads]
        update = self._packed(combine(changes, shares, ctx.aggregation), ctx)
        change = low_rank.expand(within(UPDATE, update), shapes)
        new = {name: tensor + change[name] for name, tensor in full.items()}
        return State({**under(FULL, new), **update}, {"round": ctx.round})

    def change(self, upload: Received, download: Payload, ctx: Context) -> Tensors:
        shapes = _shapes(self._mentee(upload.card, ctx).state_dict())
        return low_rank.expand(within(UPDATE, upload.payload.tensors), shapes)

    def allowed(self, card: Card, ctx: Context) -> Wire:
        mentee = self._mentee(card, ctx).state_dict()
        down, up = [], []
        for name, tensor in mentee.items():
            forms = low_rank.options(UPDATE + name, tensor)
            up.append(Group(forms if self.config.compression else forms[:1]))
            down.append(Group(({FULL + name: TensorSpec.of(tensor)}, *forms)))
        return Wire(down=WireSpec(tuple(down)), up=WireSpec(tuple(up)))

    def _packed(self, change: dict[str, Tensor], ctx: Context) -> dict[str, Tensor]:
        if not self.config.compression:
            return under(UPDATE, change)
        return under(UPDATE, low_rank.compress(change, energy_at(ctx.round, self.config)))

    def _mentee(self, of: Card | Client, ctx: Context) -> nn.Module:
        return shared_model.build(self.config.shared_model, of.shape, ctx)


def energy_at(round: int, config: FedKDConfig) -> float:
    """T = T_start + (t / R) (T_end - T_start), T_end from round R on."""
    progress = min(1.0, round / config.schedule_rounds)
    return config.energy_start + progress * (config.energy_end - config.energy_start)


def mentor_and_mentee_losses(
    mentor: nn.Module, mentee: nn.Module, w_h: nn.Module, batch: Batch, config: FedKDConfig
) -> tuple[Tensor, Tensor]:
    """CE + A KL + A MSE for both, with A = 1 / (CE_t + CE_s); W_h learns from the mentee's."""
    rep_t, logits_t = represent(mentor, batch.x)
    rep_s, logits_s = represent(mentee, batch.x)
    mapped = w_h(rep_s)
    ce_t, ce_s = label_loss(logits_t, batch), label_loss(logits_s, batch)
    # Where both losses approach 0 the weight explodes, hence the floor; and a gradient through it
    # would reward larger losses, hence the detachment.
    weight = 1 / (ce_t + ce_s).clamp_min(config.weight_floor)
    if not config.grad_through_weight:
        weight = weight.detach()
    loss_t = ce_t + weight * (kl_from(logits_s, logits_t) + F.mse_loss(rep_t, mapped.detach()))
    loss_s = ce_s + weight * (kl_from(logits_t, logits_s) + F.mse_loss(rep_t.detach(), mapped))
    return loss_t, loss_s


def _projection(mentor: nn.Module, mentee: nn.Module) -> nn.Linear:
    return nn.Linear(head_of(mentee).in_features, head_of(mentor).in_features, bias=False)


def _shapes(tensors: Tensors) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _received(download: Payload, kept: dict[str, Tensor], mentee: nn.Module) -> dict[str, Tensor]:
    """The server's mentee: sent whole, or the copy of last time plus the update since."""
    if full := within(FULL, download.tensors):
        return full
    copy = within("mentee.", kept)
    shapes = _shapes(mentee.state_dict())
    change = low_rank.expand(within(UPDATE, download.tensors), shapes)
    return {name: copy[name] + change[name] for name in shapes}
