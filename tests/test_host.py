"""The client's side of the protocol."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pfedes import Client, Method, Payload, Upload
from pfedes.core.protocol import Failure, Reply, Task
from pfedes.fleet.client_host import ClientHost, _is_its_state, host_of
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore
from running import small

CLIENT = "client-0002"


@pytest.fixture
def simulation() -> Simulation:
    return Simulation(small())


@pytest.fixture
def host(simulation: Simulation, tmp_path: Path) -> ClientHost:
    return host_of(simulation, ClientStore(tmp_path / "clients"))


def task(simulation: Simulation, round: int = 1, base: int = 0, scale: float = 1.0) -> Task:
    ctx = simulation.context(round)
    theta = simulation.method.start(simulation.population.cards(()), ctx).tensors
    return Task("r", CLIENT, round, base, Payload({k: scale * v for k, v in theta.items()}))


def replied(answer: Reply | Failure) -> Reply:
    assert isinstance(answer, Reply), answer
    return answer


def test_a_repeated_task_is_answered_from_the_store(
    host: ClientHost, simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = replied(host.answer(task(simulation)))
    monkeypatch.setattr(
        type(simulation.method), "client_round", lambda *_: pytest.fail("trained twice")
    )
    again = replied(host.answer(task(simulation)))
    assert again.payload.digest() == first.payload.digest()


def test_another_download_is_another_task(host: ClientHost, simulation: Simulation) -> None:
    first = replied(host.answer(task(simulation)))
    other = replied(host.answer(task(simulation, scale=0.5)))
    assert other.payload.meta["state"] != first.payload.meta["state"]


def test_newer_versions_are_discarded(host: ClientHost, simulation: Simulation) -> None:
    straight = replied(host.answer(task(simulation, round=1)))
    host.answer(task(simulation, round=2, base=1))
    host.answer(task(simulation, round=3, base=2))
    assert host.store.versions("r", CLIENT) == [1, 2, 3]
    host.answer(task(simulation, round=4, base=1))
    assert host.store.versions("r", CLIENT) == [1, 4]
    assert replied(host.answer(task(simulation, round=1))).payload.digest() == (
        straight.payload.digest()
    )


def test_a_missing_base_is_said(host: ClientHost, simulation: Simulation) -> None:
    host.answer(task(simulation, round=2))
    answer = host.answer(task(simulation, round=9, base=5))
    assert answer == Failure(CLIENT, "missing base", (2,), "missing base")
    assert host.store.versions("r", CLIENT) == [2]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"conv1.bias": torch.full((8,), torch.nan)}, "holds NaN"),
        ({"conv1.bias": torch.zeros(9)}, r"is [9] float32"),
        ({"secret": torch.zeros(1)}, "not on the allow-list"),
    ],
)
def test_a_bad_download_is_refused_before_anything_is_touched(
    host: ClientHost, simulation: Simulation, change: dict[str, torch.Tensor], reason: str
) -> None:
    host.answer(task(simulation, round=1))
    good = task(simulation, round=2, base=1)
    bad = Task("r", CLIENT, 2, 0, Payload({**good.download.tensors, **change}))
    answer = host.answer(bad)
    assert isinstance(answer, Failure)
    assert "download refused" in answer.reason
    assert reason in answer.reason
    assert host.store.versions("r", CLIENT) == [1]


def test_an_error_in_training_is_that_clients_failure(
    host: ClientHost, simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("boom")

    raised = f"{Path(__file__).name}:{explode.__code__.co_firstlineno + 1}"
    monkeypatch.setattr(type(simulation.method), "client_round", explode)
    assert host.answer(task(simulation)) == Failure(CLIENT, f"RuntimeError: boom ({raised})")
    assert host.store.versions("r", CLIENT) == []


def test_a_client_does_not_send_what_is_not_listed(
    host: ClientHost, simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = type(simulation.method).client_round

    def leaky(self: Method[Any], client: Client, *rest: Any) -> Upload:
        upload = honest(self, client, *rest)
        upload.tensors["image"] = client.train.batch(slice(0, 1)).x
        return upload

    monkeypatch.setattr(type(simulation.method), "client_round", leaky)
    answer = host.answer(task(simulation))
    assert isinstance(answer, Failure)
    assert "'image' is not on the allow-list" in answer.reason
    assert host.store.versions("r", CLIENT) == []


def test_scoring_changes_nothing(host: ClientHost, simulation: Simulation) -> None:
    from pfedes.core.protocol import Scored

    first, again = (host.score(task(simulation)) for _ in range(2))
    assert isinstance(first, Scored)
    assert first == again
    assert host.store.versions("r", CLIENT) == []


def test_a_damaged_base_is_not_loaded(host: ClientHost, simulation: Simulation) -> None:
    host.answer(task(simulation))
    (path,) = host.store.root.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    answer = host.answer(task(simulation, round=2, base=1))
    assert isinstance(answer, Failure)
    assert answer.versions == ()
    assert "missing base" in answer.reason
    assert f"{path.name} is damaged" in answer.reason


class Remembering(nn.Module):
    """A model part of which no state has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("unsaved", torch.rand(1), persistent=False)


def test_only_models_that_are_their_state_go_from_client_to_client() -> None:
    assert _is_its_state(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert not _is_its_state(Remembering())


def test_an_upload_is_not_touched_by_the_next_client(host: ClientHost) -> None:
    simulation = Simulation(small("fedavg", models__pool=["cnn5"]))
    other = host_of(simulation, host.store)
    method, ctx = simulation.method, simulation.context(1)
    cards = simulation.population.cards(method.needs)
    state = method.start(cards, ctx)
    tasks = [Task("r", card.name, 1, 0, method.download(state, card, ctx)) for card in cards]
    later = [Task("r", card.name, 2, 1, method.download(state, card, ctx)) for card in cards]
    first = replied(other.answer(tasks[0]))
    digest = first.payload.digest()
    for task in [*tasks[1:], *later]:
        replied(other.answer(task))
    assert first.payload.digest() == digest
