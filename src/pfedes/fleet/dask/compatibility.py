"""Which workers may join: those that compute the driver's bits and have enough memory.

`facts_of_worker` runs on the worker, in its only thread, as the work will; its result is compared
with the same facts of the driver.
"""

import platform
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
import psutil
import torch
from distributed import get_worker

from pfedes.core.aggregation import AggregationConfig
from pfedes.core.client import Card, Client
from pfedes.core.context import Context
from pfedes.core.device import device_of
from pfedes.core.payload import Payload
from pfedes.core.precision import Precision
from pfedes.core.samples import Normaliser, Samples
from pfedes.core.seeding import Streams
from pfedes.core.train_config import TrainConfig
from pfedes.files import existing
from pfedes.fleet.serial import with_threads
from pfedes.formatting import measured
from pfedes.imports import PACKAGE
from pfedes.methods.pfedes import PFedES
from pfedes.models import build_model, channels_last
from pfedes.store.environment import processor
from pfedes.version import __version__

LEAST_MEMORY = 500_000_000  # bytes; a worker with torch and a client of CNN-1 takes about that

Device = Literal["auto", "cpu", "cuda", "mps"]
Precisions = Sequence[Precision]
"""All in which clients train."""


@dataclass(frozen=True)
class NodeFacts:
    """The facts that decide whether two processes compute the same."""

    versions: dict[str, str]
    processor: str
    canary: str  # of every precision, one after the other
    name: str = ""
    host: str = ""
    memory: int = 0  # bytes it may still take
    sees: bool = False  # the driver's directory


@dataclass(frozen=True)
class Probe:
    """A file with a random word: a worker that can read the word sees the directory."""

    path: str
    word: str

    def is_seen(self) -> bool:
        try:
            return bool(self.path) and Path(self.path).read_text() == self.word
        except OSError:
            return False


@contextmanager
def probing(directory: Path | None) -> Iterator[Probe]:
    """A probe in a directory, or in the nearest one above it that is there already."""
    if directory is None:
        yield Probe("", "")
        return
    word = secrets.token_hex(16)
    path = existing(directory).absolute() / f".pfedes-probe-{word[:8]}"
    try:
        path.write_text(word)
        yield Probe(str(path), word)
    finally:
        path.unlink(missing_ok=True)


def facts_of_process(device: Device, threads: int, precisions: Precisions) -> NodeFacts:
    """The facts of this process."""
    canaries = " ".join(canary(device, threads, precision) for precision in precisions)
    return NodeFacts(_versions(), processor(), canaries)


def facts_of_worker(
    device: Device, threads: int, precisions: Precisions, probe: Probe
) -> NodeFacts:
    """The facts of the worker that runs this."""
    worker, ours = get_worker(), facts_of_process(device, threads, precisions)
    limit = worker.memory_manager.memory_limit
    free = psutil.virtual_memory().available
    if limit:
        free = min(free, limit - psutil.Process().memory_info().rss)
    return NodeFacts(
        ours.versions,
        ours.processor,
        ours.canary,
        name=str(worker.name),
        host=platform.node(),
        memory=free,
        sees=probe.is_seen(),
    )


def differences(ours: NodeFacts, theirs: NodeFacts, threads: int, *, mixed: bool) -> Iterator[str]:
    """Why a worker cannot join, one reason at a time; `mixed` accepts other processors."""
    for what, version in ours.versions.items():
        if (found := theirs.versions.get(what)) != version:
            yield f"{what} {found}, the driver has {version}"
    if threads != 1:
        yield f"{threads} threads: start it with --nthreads 1"
    if theirs.memory < LEAST_MEMORY:
        free, least = measured(theirs.memory, "B"), measured(LEAST_MEMORY, "B")
        yield f"{free} of free memory, {least} are needed"
    if theirs.versions == ours.versions and theirs.canary != ours.canary and not mixed:
        yield (
            f"its training gives other bits ({theirs.processor}; the driver: {ours.processor}): "
            "runtime.mixed_hardware = true accepts that"
        )


def canary(device: Device, threads: int, precision: Precision = "float32") -> str:
    """The digest of a little training by the code that all training goes through."""
    streams, shape, classes = Streams(0), (3, 32, 32), 10
    place = device_of(device)
    rng = streams.numpy("canary")
    pixels = torch.from_numpy(rng.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, classes, 40))
    samples = Samples(pixels.to(place), labels.to(place), Normaliser.of([0.5] * 3, [0.25] * 3))
    train = TrainConfig(epochs=2, batch_size=16, lr=0.05, augment=True, precision=precision)
    method = PFedES(extractor_epochs=1)
    ctx = Context(1, 1, streams, train, AggregationConfig(), classes, 3, ("cnn1",), False)
    with with_threads(threads):
        with streams.ambient("canary"):
            model = channels_last(build_model("cnn1", classes, shape)).to(place)
            client = Client("canary", "cnn1", model, samples, samples, samples)
            state = method.start([Card("canary", len(samples), shape)], ctx)
            down = {name: tensor.to(place) for name, tensor in state.tensors.items()}
            upload = method.client_round(client, Payload(down), ctx)
        learnt = Payload({**client.state(), **upload.tensors}, {"loss": upload.loss})
        return learnt.digest()


def _versions() -> dict[str, str]:
    return {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pfedes": f"{__version__} ({_source()})",
    }


def _source() -> str:
    """Identifies the code itself: between releases one version number stands for many."""
    home = PACKAGE
    sha = sha256()
    for path in sorted(home.rglob("*.py")):
        sha.update(f"{path.relative_to(home)}\0".encode() + path.read_bytes() + b"\0")
    return f"source {sha.hexdigest()[:8]}"
