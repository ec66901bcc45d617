"""Run stores made by hand: two clients, one tensor each."""

from pathlib import Path

import torch

from pfedes import Card, Payload, Scores
from pfedes.core.payload import Value
from pfedes.store.client_store import Version
from pfedes.store.manifest import Manifest, Standing
from pfedes.store.run_store import RunStore, roster_bytes, roster_name, server_name

SCORES = Scores(1, 2, 3, 4)
CARDS = [Card("a", 8, (3, 32, 32)), Card("b", 9, (3, 32, 32), parameters={"w": ("float32", (2,))})]


def manifest(round: int, versions: dict[str, int], best: int | None = None) -> Manifest:
    return Manifest(
        run="r",
        round=round,
        status="ok",
        initial_accuracy=0.1,
        best_round=best,
        best_validation=None if best is None else 0.5,
        roster=roster_name(roster_bytes(CARDS)),
        server=server_name(round),
        server_digest=held(round).digest(),
        metrics={},
        clients={n: standing(n, v) for n, v in versions.items()},
    )


def held(round: int) -> Payload:
    return Payload({"theta": torch.tensor([float(round)])} if round else {})


def standing(client: str, version: int) -> Standing:
    digest = Payload(after(client, version).state).digest() if version else ""
    return Standing(version=version, digest=digest, scores=SCORES, local=SCORES)


def after(client: str, round: int, run: str = "r") -> Version:
    reply = Payload({"u": torch.tensor([float(round)])}, {"loss": float(round)})
    task: dict[str, Value] = {"run": run, "client": client, "round": round, "base": 0}
    return Version({"w": torch.full((3,), float(round))}, task, reply)


def create(path: Path) -> RunStore:
    first = manifest(0, {"a": 0, "b": 0})
    return RunStore.create(path, {"config.toml": "seed = 1"}, CARDS, Payload(), first)


def commit(store: RunStore, round: int, versions: dict[str, int], best: int | None = None) -> None:
    for name, number in versions.items():
        if number == round:
            store.clients.commit(after(name, round))
    store.write_server(server_name(round), held(round))
    store.write_manifest(manifest(round, versions, best))
