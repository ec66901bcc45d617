"""What holds for every method: in any fleet, after any interruption, whatever a liar sends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from golden import TINY
from pfedes import Config, Federation, Participant, Payload, PfedesError, configure
from pfedes.core.payload import TensorSpec
from pfedes.core.protocol import Reply, Task
from pfedes.federation.admission import Admission
from pfedes.fleet.client_host import host_of
from pfedes.methods import METHODS
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore
from running import few, result

CLIENT = "client-0001"


def quick(method: str, **settings: Any) -> Config:
    """Three rounds with missing clients."""
    return few(method, **{"train__participation": 0.7, "train__rounds": 3, **settings})


@pytest.mark.parametrize("method", METHODS)
def test_interrupted_and_resumed_is_uninterrupted(method: str, tmp_path: Path) -> None:
    kept: dict[str, Any] = {"train__optimiser": "kept"}
    # FedKD fixes its schedule when a run is made.
    if method == "fedkd":
        kept["method__schedule_rounds"] = 3
    straight = Federation(quick(method, **kept), out=tmp_path / "straight").run()
    Federation(quick(method, train__rounds=1, **kept), out=tmp_path / "run").run()
    resumed = Federation.resume(tmp_path / "run", rounds=3).run()
    assert result(resumed) == result(straight)


ALSO_QUICKLY = ("fedtgp", "fedmrl")  # server training, and what is kept beside the model


@pytest.mark.parametrize(
    "method",
    [
        method if method in ALSO_QUICKLY else pytest.param(method, marks=pytest.mark.repeat)
        for method in METHODS
    ],
)
def test_workers_give_the_bits_of_this_process(method: str, tmp_path: Path) -> None:
    serial = Federation(quick(method), out=tmp_path / "serial").run()
    workers = {"runtime__fleet": "workers", "runtime__workers": 1}
    run = Federation(quick(method, **workers), out=tmp_path / "run").run()
    assert result(run) == result(serial)


class NodeSession:
    """A server, and one client's honest answer to its first task."""

    def __init__(self, method: str, place: Path) -> None:
        simulation = Simulation(quick(method))
        self.method, self.ctx = simulation.method, simulation.context(1)
        host = host_of(simulation, ClientStore(place))
        self.cards = {card.name: card for card in host.cards()}
        self.state = self.method.start(list(self.cards.values()), self.ctx)
        card = self.cards[CLIENT]
        self.task = Task("run", CLIENT, 1, 0, self.method.download(self.state, card, self.ctx))
        answer = host.answer(self.task)
        assert isinstance(answer, Reply), answer
        self.reply = answer.payload

    def verdict(self, payload: Payload) -> tuple[str, str]:
        admission = Admission([self.task], self.cards, self.method, self.ctx)
        found = admission.examine(Reply(CLIENT, payload))
        return found.status, found.reason


def spoilt(tensor: torch.Tensor, value: float) -> torch.Tensor:
    changed = tensor.flatten().clone()
    changed[0] = value
    return changed.reshape(tensor.shape)


SPOILING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nan": lambda tensor: spoilt(tensor, torch.nan),
    "infinity": lambda tensor: spoilt(tensor, torch.inf),
    "overflowing": lambda tensor: spoilt(tensor, 1e30),
    "shape": lambda tensor: tensor[None],
    "type": lambda tensor: tensor.double(),
    "longer": lambda tensor: torch.cat([tensor, tensor]),
}


@pytest.mark.parametrize("method", METHODS)
def test_hostile_uploads_are_turned_away(method: str, tmp_path: Path) -> None:
    desk = NodeSession(method, tmp_path)
    reply = desk.reply
    assert desk.verdict(reply) == ("ok", "")
    foreign = {**reply.tensors, "secret": torch.zeros(1)}
    assert desk.verdict(Payload(foreign, reply.meta))[0] == "rejected"
    for name, tensor in reply.tensors.items():
        rest = {other: value for other, value in reply.tensors.items() if other != name}
        assert desk.verdict(Payload(rest, reply.meta))[0] == "rejected"
        for how, spoil in SPOILING.items():
            if how == "longer" and name.endswith("/factors"):
                continue  # FedKD's ranks are free
            status, reason = desk.verdict(Payload({**rest, name: spoil(tensor)}, reply.meta))
            assert status == "rejected", (name, how)
            assert name in reason or "it differs from the download" in reason


@pytest.mark.parametrize("method", [name for name in METHODS if name != "standalone"])
def test_wrong_class_ids_are_turned_away(method: str, tmp_path: Path) -> None:
    desk = NodeSession(method, tmp_path)
    labels = desk.reply.meta.get("labels")
    if labels is None:
        assert not {"classes", "labels"} & desk.method.needs
        return
    assert isinstance(labels, list)
    strange = next(label for label in range(10) if label not in labels)
    for wrong in (
        *([], labels[:-1], labels[::-1], [*labels, strange], [labels[0]] * len(labels)),
        sorted([*labels[1:], strange]),
    ):
        status, reason = desk.verdict(
            Payload(desk.reply.tensors, {**desk.reply.meta, "labels": wrong})
        )
        assert status == "rejected"
        assert "labels" in reason


@pytest.mark.parametrize("method", METHODS)
def test_every_epoch_of_a_client_is_declared(method: str) -> None:
    """`limits.epochs` bounds what a client trains: all keys of epochs that are not the server's."""
    config = METHODS[method].Config
    epochs = {name for name in config.model_fields if name.endswith("epochs")}
    assert {name for name in epochs if not name.startswith("server_")} == set(config.local_epochs)


def test_numbers_in_a_list_have_bounds() -> None:
    spec = TensorSpec((2,), least=0, most=1)
    spec.check_numbers("w", torch.tensor([0.0, 1.0]))
    spec.check_numbers("w", torch.zeros(0))
    for wrong in (-0.1, 1.1, torch.inf, -torch.inf, torch.nan):
        with pytest.raises(Exception, match="'w' holds"):
            spec.check_numbers("w", torch.tensor([0.5, wrong]))


def of_rows(method: str) -> Config:
    """Two participants with tables, and models of one width."""
    people = [
        Participant(name=name, model="tiny:tabular", data=f"tiny:{name}_rows", methods=(method,))
        for name in ("ada", "ben")
    ]
    own = method == "pfedes"  # whose keys TINY has
    settings = {k: v for k, v in TINY.items() if own or not k.startswith("method.")}
    return configure(method=method, participants=people, settings=settings)


CNNS = ("fedavg", "fml", "fedkd", "fedmrl")  # what they share is one, or the pool's first


@pytest.mark.parametrize("method", METHODS)
def test_tables_are_served_or_refused_before_round_1(method: str, tmp_path: Path) -> None:
    federation = Federation(of_rows(method), out=tmp_path / "run")
    if method in CNNS:
        with pytest.raises(PfedesError, match="a CNN is for images"):
            federation.run()
        assert not (tmp_path / "run").exists()
        return
    run = federation.run()
    assert [row["answered"] for row in run.rounds] == [2, 2]
    assert run.personal("ada").facts.scores == run.manifest.clients["ada"].scores
