"""How much a participant lets a coordinator ask for.

A coordinator chooses the download and the hyper-parameters of a round. Some choices make an upload
reveal single samples: a batch of one, a single step, an extractor that responds to one picture.
The defaults do not affect ordinary federations.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from pfedes.core.client import Card
from pfedes.core.context import Caution, Context
from pfedes.core.payload import Payload
from pfedes.errors import WireError
from pfedes.methods.base import Method
from pfedes.section import Section


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    least, most = bounds
    if least > most:
        raise ValueError(f"the smallest value, {least:g}, exceeds the largest, {most:g}")
    return bounds


Number = Annotated[float, Field(ge=0)]
Range = Annotated[tuple[Number, Number], AfterValidator(_ordered)]


class Limits(Section):
    """The table `[limits]` of a participant's file: bounds on what a coordinator may ask for.

    Its fields are keys of that table: see the page on configuration.
    """

    epochs: int = Field(0, ge=0, description="most local epochs of any model; 0 = any number")
    floats: int = Field(0, ge=0, description="most numbers that may leave; 0 = any number")
    samples: int = Field(8, ge=0, description="fewest training samples to take part with")
    batch: int = Field(
        4,
        ge=0,
        description="smallest batch size; the uploaded part is not trained on a shorter last batch",
    )
    steps: int = Field(2, ge=0, description="fewest training steps of the uploaded part in a round")
    rounds: int = Field(10_000, ge=0, description="most rounds answered, over all runs; 0 = any")
    runs: int = Field(100, ge=0, description="most runs begun; 0 = any number")
    lr: Range = Field((1e-6, 1.0), description="least and largest learning rate of any model")
    momentum: Range = Field((0.0, 0.99), description="least and largest momentum")
    weight_decay: Range = Field((0.0, 0.1), description="least and largest weight decay")
    clip: Range = Field((0.0, 1000.0), description="least and largest norm of a clipped gradient")
    mu: Range = Field((0.001, 0.5), description="pFedES: least and largest mu")
    silent: float = Field(
        0.9,
        ge=0,
        le=1,
        description="pFedES: largest share of hidden units that respond to fewer samples than "
        "crowd",
    )
    crowd: float = Field(
        0.01,
        ge=0,
        le=1,
        description="pFedES: units that respond to a smaller share of the own samples, or to one "
        "sample, stay as received; 0 = none",
    )
    download: float = Field(
        10.0, ge=0, description="largest root mean square of received parameters; 0 = any"
    )
    change: float = Field(
        1.0,
        ge=0,
        description="largest root mean square of their change since the last round; 0 = any",
    )

    epsilon: float = Field(
        0.0, ge=0, description="largest own privacy loss, over all runs of this state; 0 = any"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="delta of the privacy loss")
    secure_sum: bool = Field(
        False, description="whether to take part only where the server sees sums of changes"
    )
    co_participants: int = Field(
        0, ge=0, description="fewest others in a secure sum; 0 = as many as the kit says"
    )

    @model_validator(mode="after")
    def _others_only_in_sums(self) -> Self:
        if self.co_participants and not self.secure_sum:
            raise ValueError("co_participants counts those in a sum: set secure_sum = true as well")
        return self

    def bounds(self, method: Method[Any], card: Card, ctx: Context) -> Iterator["Bound"]:
        """Compares a round with every limit that needs no download.

        Args:
            method: The method of the federation.
            card: The participant's card.
            ctx: The round and the settings that the coordinator asks for.

        Returns:
            Each limit, next to the value that the coordinator asks for.
        """
        yield at_most("epochs", "epochs", method.client_epochs(ctx), self.epochs)
        yield at_most("rounds", "train.rounds", ctx.rounds, self.rounds)
        summed = ctx.summed != "no"
        yield at_least("secure_sum", "privacy.secure_sum", summed, self.secure_sum)
        fewest = max(self.samples, self.batch)
        yield at_least("samples", "training samples", card.samples, fewest)
        yield at_least("batch", "train.batch_size", ctx.train.batch_size, self.batch)
        if method.averages_parameters:
            yield at_least("steps", "steps", self.fewest_steps(method, card, ctx), self.steps)
        own = method.config.model_dump()
        rates = {f"method.{key}": rate for key, rate in own.items() if key.endswith("lr")}
        for name, rate in {"train.lr": ctx.train.lr, **rates}.items():
            yield within("lr", name, rate, self.lr)
        yield within("momentum", "train.momentum", ctx.train.momentum, self.momentum)
        decay = ctx.train.weight_decay
        yield within("weight_decay", "train.weight_decay", decay, self.weight_decay)
        yield within("clip", "train.clip", ctx.train.clip, self.clip)
        if "mu" in own:
            yield within("mu", "method.mu", own["mu"], self.mu)

    def fewest_steps(self, method: Method[Any], card: Card, ctx: Context) -> int:
        """Returns the number of steps that an upload sums up in a round.

        Args:
            method: The method of the federation.
            card: The participant's card.
            ctx: The round and the settings that the coordinator asks for.
        """
        own = (int(getattr(method.config, key)) for key in method.config.local_epochs)
        epochs = min(own, default=ctx.train.epochs)
        # An extractor's epoch may see a share of the samples only.
        seen = max(1, round(getattr(method.config, "extractor_share", 1.0) * card.samples))
        batches, rest = divmod(seen, ctx.train.batch_size)
        return epochs * (batches + (rest > 0 and rest >= self.batch))

    def left_out(self, card: Card, ctx: Context) -> int:
        """Returns the number of samples in a last batch that is too short for an upload.

        Args:
            card: The participant's card.
            ctx: The round and the settings that the coordinator asks for.
        """
        rest = card.samples % ctx.train.batch_size
        return rest if rest < self.batch else 0

    def cautious(self, ctx: Context) -> Context:
        """Returns the round with the caution that the participant's limits demand.

        Args:
            ctx: The round and the settings that the coordinator asks for.
        """
        return replace(ctx, caution=Caution(self.batch, self.crowd, self.silent))

    def check_download(self, method: Method[Any], download: Payload) -> None:
        """Refuses parameters that are larger than trained ones ever are.

        Args:
            method: The method of the federation.
            download: What the coordinator sent.

        Raises:
            WireError: Their root mean square exceeds `limits.download`.
        """
        if method.averages_parameters:
            _check_size("download", "the download", download, self.download)

    def check_change(self, download: Payload, last: Payload) -> None:
        """Refuses parameters that are far from those of the last round.

        Args:
            download: What the coordinator sent.
            last: What it sent when the participant last answered.

        Raises:
            WireError: The root mean square of the change exceeds `limits.change`.
        """
        forms = ({name: t.shape for name, t in p.tensors.items()} for p in (download, last))
        if next(forms) == next(forms):
            change = {n: t.double() - last.tensors[n] for n, t in download.tensors.items()}
            _check_size(
                "change", "the change since the last download", Payload(change), self.change
            )


@dataclass(frozen=True)
class Bound:
    """One limit of a participant, next to the value that the coordinator asks for."""

    key: str
    name: str
    asked: float
    allowed: str
    is_kept: bool

    def __str__(self) -> str:
        return f"{self.name} = {self.asked:g}, limits.{self.key} allows {self.allowed}"


def at_most(key: str, name: str, asked: float, most: float) -> Bound:
    """A limit from above; 0 allows any value."""
    return Bound(
        key, name, asked, f"at most {most:g}" if most else "any", not most or asked <= most
    )


def at_least(key: str, name: str, asked: float, least: float) -> Bound:
    return Bound(key, name, asked, f"at least {least:g}" if least else "any", asked >= least)


def within(key: str, name: str, asked: float, range: tuple[float, float]) -> Bound:
    """A limit from both sides."""
    least, most = range
    return Bound(key, name, asked, f"{least:g} to {most:g}", least <= asked <= most)


def _check_size(key: str, what: str, payload: Payload, most: float) -> None:
    floating = [t.double() for t in payload.tensors.values() if t.is_floating_point()]
    count = sum(tensor.numel() for tensor in floating)
    if not most or not count:
        return
    size = math.sqrt(sum(float(tensor.square().sum()) for tensor in floating) / count)
    if size > most:
        raise WireError(
            f"{what} has a root mean square of {size:.3g}, limits.{key} allows at most {most:g}"
        )
