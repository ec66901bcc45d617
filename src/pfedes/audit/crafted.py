"""A coordinator reads pixels from uploads, with extractors that it crafted for that.

A unit that responds to one patch of one picture learns from that patch alone: the change of its
weights divided by the change of its bias is the patch. The coordinator of this attack also chooses
hyper-parameters that suit it. The `[limits]` of a participant stop the attack.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from pfedes.config.limits import Limits
from pfedes.core.aggregation import Tensors
from pfedes.core.payload import Payload
from pfedes.core.protocol import Failure, Reply, Task
from pfedes.fleet.client_host import ClientHost
from pfedes.population.base import Population

CRAFTED = "crafted downloads"
NO_LIMITS = Limits(samples=0, batch=0, steps=0, rounds=0, runs=0, lr=(0, 1e9), momentum=(0, 1),
                   weight_decay=(0, 1e9), clip=(0, 1e9), mu=(0, 1), silent=1, crowd=0, download=0,
                   change=0)  # fmt: skip
CONVENIENT: Mapping[str, float] = {
    "train.momentum": 0,
    "train.weight_decay": 0,
    "train.clip": 0,
    "train.batch_size": 64,
    "method.extractor_lr": 0.5,
}
"""The settings that the coordinator chooses."""

CLOSE = 0.02
"""How far each number of a patch may be from the client's, in standardised pixels."""

CONTRAST = 0.3
"""Standard deviation in a patch, below which it is flat: anybody could guess it."""

KERNEL = 3

Change = dict[str, Tensor]


def patches_of(population: Population, name: str) -> Tensor:
    """All patches of a client's training images, as the extractor sees them."""
    x = population.client(name).train.batch(slice(None)).x
    unfolded = torch.nn.functional.unfold(x, KERNEL, padding=KERNEL // 2)
    size = x.shape[1] * KERNEL**2
    patches: Tensor = unfolded.transpose(1, 2).reshape(-1, size).unique(dim=0)
    return patches


def not_flat(patches: Tensor) -> Tensor:
    return patches[patches.std(dim=1) > CONTRAST]


class Thief:
    """A coordinator that crafts extractors, and reads patches of pixels from what comes back."""

    def __init__(
        self,
        host: ClientHost,
        victim: str,
        honest: Mapping[str, Tensor],
        own: Tensor,
        read: Callable[[Task, Reply], Tensors] | None = None,
        beside: Sequence[str] = (),
    ) -> None:
        """`own` are patches of such pictures as the thief has itself, `honest` an extractor.

        `read` is how the change is read from an answer that is no plain upload. The thief sees the
        victim's alone, or its sum with those of the clients `beside` it: then it robs them all.
        """
        self.host = host
        self.victim = victim
        self.honest = dict(honest)
        self.own = own
        self.read = read or _difference
        self.members = (victim, *beside)
        known = [patches_of(host.population, name) for name in self.members]
        self.known = not_flat(torch.cat(known))
        self.rng = np.random.default_rng(0)

    def ask(self, run: str, tensors: Mapping[str, Tensor]) -> Reply | Failure:
        return self.host.answer(self._task(run, self.victim, tensors))

    def change(self, run: str, tensors: Mapping[str, Tensor]) -> Change | None:
        """The sum of the changes of members with the same task; None if one refuses."""
        changes = []
        for name in self.members:
            task = self._task(run, name, tensors)
            answer = self.host.answer(task)
            if isinstance(answer, Failure):
                return None
            changes.append(self.read(task, answer))
        return {key: torch.stack([each[key] for each in changes]).sum(0) for key in changes[0]}

    def _task(self, run: str, name: str, tensors: Mapping[str, Tensor]) -> Task:
        return Task(run, name, 1, 0, Payload(dict(tensors)))

    def crafted(self, units: int) -> dict[str, Tensor]:
        """Filters in random directions that answer to few patches of such pictures.

        How large a direction gets in them the thief knows from pictures of its own.
        """
        theta = {name: tensor.clone() for name, tensor in self.honest.items()}
        channels = theta["conv1.weight"].shape[1]
        # Grey pictures come with equal channels.
        grey = self.own.view(len(self.own), channels, -1)
        is_grey = bool((grey == grey[:, :1]).all())
        drawn = (units, 1 if is_grey else channels, KERNEL, KERNEL)
        found = torch.from_numpy(self.rng.standard_normal(drawn)).float()
        found = found.expand(-1, channels, -1, -1)
        found = found / found.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        reached = (self.own @ found.flatten(1).T).amax(dim=0)
        theta["conv1.weight"][:units], theta["conv1.bias"][:units] = found, -reached
        theta["conv2.weight"][:, :units] = 0.5  # whatever answers is heard
        theta["conv2.bias"][:] = 1.0
        return theta

    def stolen(
        self, units: int, requests: int, seen: Callable[[Change], Change] = dict
    ) -> Iterator[Tensor]:
        """Candidates for patches: changes of weights divided by changes of biases.

        `seen` is what the server sees of a change.
        """
        for number in range(requests):
            sent = self.crafted(units)
            found = self.change(f"run{number}", sent)
            if found is None:
                continue
            change = seen(found)
            for weights, bias in zip(change["conv1.weight"], change["conv1.bias"], strict=True):
                if abs(float(bias)) > 1e-9:
                    yield weights / bias

    def guessed(self, count: int) -> Tensor:
        """Patches of the thief's own: what it could say without asking."""
        own = not_flat(self.own)
        return own[self.rng.choice(len(own), count)]

    def hits(self, guesses: Iterable[Tensor] | Tensor) -> int:
        """How many different patches of the client are among guesses."""
        found = set()
        for guess in guesses:
            far = (self.known - guess.flatten()).abs().amax(dim=1)
            if float(far.min()) < CLOSE:
                found.add(int(far.argmin()))
        return len(found)


def _difference(task: Task, answer: Reply) -> Change:
    sent, tensors = task.download.tensors, answer.payload.tensors
    return {name: tensors[name] - sent[name] for name in sent}
