"""What a participant does not let a coordinator ask for, and the theft that this stops."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from commands import command
from guests import ada, enrolled, task, terms
from people import OWN, federation
from pfedes import Config, Limits, configure
from pfedes.audit.crafted import CONVENIENT, Thief, patches_of
from pfedes.audit.crafted import NO_LIMITS as NONE
from pfedes.config.participant import participant_from
from pfedes.core.payload import Payload
from pfedes.core.protocol import Failure, Reply, Task
from pfedes.deploy.participant.handler import ParticipantHandler
from pfedes.errors import ConfigError
from pfedes.fleet.client_host import host_of
from pfedes.fleet.messages import from_task
from pfedes.methods._firing import Rare
from pfedes.population.consent import Consent
from pfedes.population.simulation import Simulation
from pfedes.store.client_store import ClientStore
from running import contents

BARE = {key.replace(".", "__"): value for key, value in CONVENIENT.items()}
REQUESTS = 12


def limited(config: Config, limits: Limits, *names: str) -> Simulation:
    """The participants of these names, or all, each with these limits."""
    chosen = [p for p in config.participants if p.name in names or not names]
    people = tuple(p.model_copy(update={"limits": limits}) for p in chosen)
    return Simulation(config.model_copy(update={"participants": people}))


def thief(place: Path, limits: Limits) -> Thief:
    """Ada is robbed by a coordinator who has such pictures as Dan's."""
    simulation = limited(federation(**BARE), limits, "ada", "dan")
    host = host_of(simulation, ClientStore(place))
    first = simulation.method.start(host.cards(), simulation.context(0))
    return Thief(host, "ada", first.tensors, patches_of(simulation.population, "dan"))


@pytest.mark.parametrize("units", [8, 3])
def test_no_pixels_are_stolen(tmp_path: Path, units: int) -> None:
    """Also by one who crafts a few filters and leaves the others as they were."""
    free = thief(tmp_path / "free", NONE)
    guessing = free.hits(free.guessed(units * REQUESTS))
    assert free.hits(free.stolen(units, REQUESTS)) > max(2, 2 * guessing)
    guarded = thief(tmp_path / "guarded", Limits())
    assert guarded.hits(guarded.stolen(units, REQUESTS)) <= guessing
    assert isinstance(guarded.ask("genuine", guarded.honest), Reply)


def test_no_row_of_a_table_is_stolen(tmp_path: Path) -> None:
    """A hidden unit that answers to one row alone would learn that row."""
    place = OWN.parent / "tables" / "federation.toml"
    found = {}
    for name, limits in (("free", NONE), ("guarded", Limits())):
        config = configure(place, settings={"train.momentum": 0, "train.weight_decay": 0})
        simulation = limited(config, limits)
        whose = simulation.population.names[0]
        rows = simulation.population.client(whose).train.batch(slice(None)).x
        host = host_of(simulation, ClientStore(tmp_path / name))
        theta = dict(simulation.method.start(host.cards(), simulation.context(0)).tensors)
        theta = {key: tensor.clone() for key, tensor in theta.items()}
        # In the direction of the longest row, which no other reaches.
        target = rows[rows.norm(dim=1).argmax()]
        direction = target / target.norm()
        two = (rows @ direction).sort(descending=True).values[:2]
        theta["fc1.weight"][0], theta["fc1.bias"][0] = direction, -float(two.mean())
        answer = host.answer(Task("run", whose, 1, 0, Payload(theta)))
        assert isinstance(answer, Reply), answer
        change = {key: answer.payload.tensors[key] - theta[key] for key in theta}
        read = change["fc1.weight"][0] / change["fc1.bias"][0]
        found[name] = bool((read - target).abs().max() < 0.1 * target.abs().max())
    assert found == {"free": True, "guarded": False}


def test_what_stays_as_received() -> None:
    """A unit that few samples wake, and what listens to it: that, too, would tell of the few."""
    one, two = nn.Linear(2, 3), nn.Linear(3, 2)
    extractor = nn.Sequential(one, nn.ReLU(), two)
    received = {key: tensor.clone() for key, tensor in extractor.state_dict().items()}
    with torch.no_grad():
        for values in extractor.parameters():
            values.add_(1)  # what was learned
    Rare({"0": torch.tensor([False, True, False])}, received).put_back(extractor)
    learned = {key: (t - received[key]).round() for key, t in extractor.state_dict().items()}
    assert learned["0.weight"].tolist() == [[1, 1], [0, 0], [1, 1]]
    assert learned["0.bias"].tolist() == [1, 0, 1]
    assert learned["2.weight"].tolist() == [[1, 0, 1], [1, 0, 1]]
    assert learned["2.bias"].tolist() == [1, 1]


def refusals(limits: Limits | None = None, **settings: Any) -> list[str]:
    simulation = limited(federation(**settings), NONE, "ada")
    card = simulation.population.card("ada", [])
    consent = Consent(("pfedes",), {}, limits or Limits())
    return list(consent.refusals(simulation.method, card, simulation.context(1)))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"train__batch_size": 1}, "train.batch_size = 1, limits.batch allows at least 4"),
        ({"train__batch_size": 10**6}, "steps = 1, limits.steps allows at least 2"),
        ({"train__lr": 1e-30}, "train.lr = 1e-30, limits.lr allows 1e-06 to 1"),
        ({"method__extractor_lr": 9}, "method.extractor_lr = 9, limits.lr allows 1e-06 to 1"),
        ({"train__rounds": 10**6}, "train.rounds = 1e+06, limits.rounds allows at most 10000"),
        ({"train__weight_decay": 5}, "train.weight_decay = 5, limits.weight_decay allows 0 to 0.1"),
        ({"train__clip": 1e6}, "train.clip = 1e+06, limits.clip allows 0 to 1000"),
        ({"method__mu": 1e-9}, "method.mu = 1e-09, limits.mu allows 0.001 to 0.5"),
    ],
)
def test_what_no_federation_needs_is_refused_by_default(settings: dict[str, Any], why: str) -> None:
    assert refusals(**settings) == [why]
    assert refusals(NONE, **settings) == []


@pytest.mark.parametrize(("method", "key"), [("pfedes", "width"), ("fedmrl", "representation")])
def test_what_would_fill_the_memory_is_refused_before_it_is_made(method: str, key: str) -> None:
    settings = {f"method.{key}": 10**12}
    config = configure(OWN / "federation.toml", method=method, settings=settings)
    simulation = limited(config, NONE, "ada")
    consent = Consent((method,), {}, Limits())
    card = simulation.population.card("ada", simulation.method.needs)
    card = replace(card, shape=(3, 32, 32))  # a CNN takes no smaller ones
    first = next(consent.refusals(simulation.method, card, simulation.context(1)))
    assert f"no consent to what {method!r} would send with {key} = 1000000000000" in first


def test_a_participant_may_be_stricter() -> None:
    assert refusals(Limits(momentum=(0.5, 0.99)), train__momentum=0.1) == [
        "train.momentum = 0.1, limits.momentum allows 0.5 to 0.99"
    ]
    assert refusals(Limits(samples=1000)) == [
        "training samples = 320, limits.samples allows at least 1000"
    ]
    with pytest.raises(ConfigError, match=r"limits\.lr: the smallest value, 2, exceeds"):
        participant_from(
            {"name": "x", "model": "cnn1", "data": "digits", "limits": {"lr": [2, 1]}}, Path(), "x"
        )


def test_an_empty_or_a_huge_extractor_is_refused(tmp_path: Path) -> None:
    robbing = thief(tmp_path / "clients", Limits())
    silent = {name: torch.zeros_like(tensor) for name, tensor in robbing.honest.items()}
    huge = {name: 1000 * tensor for name, tensor in robbing.honest.items()}
    for tensors, why in ((silent, "hidden units are silent"), (huge, "root mean square")):
        answer = robbing.ask("run", tensors)
        assert isinstance(answer, Failure)
        assert answer.reason.startswith("download refused")
        assert why in answer.reason
    assert not (tmp_path / "clients").exists()


def test_a_short_last_batch_teaches_nothing_that_leaves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """320 samples in batches of 53: the last two are left out, from the second phase alone."""
    caplog.set_level(logging.INFO)
    uploads = {}
    for limits in (Limits(), Limits(batch=2), NONE):
        simulation = limited(federation(train__batch_size=53), limits, "ada")
        host = host_of(simulation, ClientStore(tmp_path / str(limits.batch)))
        theta = simulation.method.start(host.cards(), simulation.context(0))
        answer = host.answer(Task("run", "ada", 1, 0, theta))
        assert isinstance(answer, Reply)
        uploads[limits.batch] = answer.payload
    assert uploads[2].tensors["conv1.weight"].equal(uploads[0].tensors["conv1.weight"])
    assert not uploads[4].tensors["conv1.weight"].equal(uploads[0].tensors["conv1.weight"])
    assert uploads[4].meta["state"] == uploads[0].meta["state"]  # the private model saw them all
    said = [r.getMessage() for r in caplog.records if "too few for a batch" in r.getMessage()]
    assert said == ["ada: left out the last 2 samples, too few for a batch of the extractor"]


@pytest.mark.usefixtures("training_here")
def test_rounds_and_runs_are_counted_over_all_runs(tmp_path: Path) -> None:
    guest = ParticipantHandler(
        ada(tmp_path / "state", limits=Limits(rounds=3, runs=2)), terms().federation
    )
    guest.seat.make()
    try:
        assert enrolled(guest)["kind"] == "reply"
        for asked, kind in (
            (task(1, 0), "reply"),
            (task(1, 0), "reply"),  # the same once more: from the store
            (task(1, 0, run="second"), "reply"),
            (task(1, 0, run="third"), "failure"),  # a third run
            (task(2, 1), "reply"),
            (task(3, 2), "failure"),  # a fourth round
        ):
            answer = guest.handle(from_task("answer", asked))
            assert answer.meta["kind"] == kind
            assert answer.meta.get("reason", "refused") == "refused"
        # Nor is anything kept for runs that a coordinator only speaks of.
        before = contents(guest.seat.directory / "state")
        for run, round in (("third", 1), ("../third", 1), ("run", 10**30)):
            answer = guest.handle(from_task("score", task(round, 0, run=run)))
            assert answer.meta.get("reason") == "refused"
        assert contents(guest.seat.directory / "state") == before
    finally:
        guest.stop()


@pytest.mark.usefixtures("training_here")
def test_huge_round_numbers_and_configurations_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guest = ParticipantHandler(ada(tmp_path / "state"), terms().federation)
    guest.seat.make()
    try:
        long = terms(models__pool=["cnn1"] * 10**5)
        assert enrolled(guest, long)["reason"] == "refused"
        assert "characters" in caplog.text
        enrolled(guest)
        guest.handle(from_task("answer", task(1, 0)))
        first = task(1, 0).download.tensors
        leap = {name: tensor + 2 for name, tensor in first.items()}
        asked = from_task("answer", task(2, 1, run="run", **leap))
        assert guest.handle(asked).meta["reason"] == "refused"
        assert "limits.change allows at most 1" in caplog.text
        assert guest.seat.clients.versions("run", "ada") == [1]
        assert guest.handle(from_task("answer", task(2, 1))).meta["kind"] == "reply"
    finally:
        guest.stop()


def test_the_check_prints_every_limit() -> None:
    done = command("check", str(OWN / "ada.toml"), "--federation", str(OWN / "federation.toml"))
    for key in Limits.model_fields:
        assert f"limits.{key}" in done.stdout
