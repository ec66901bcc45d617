"""A federation with a secure sum in one process: both sides as they are, and killed anywhere.

Messages travel as bytes. Who is killed forgets all but its files, and starts again.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from certified import authority, certified
from guests import terms
from pfedes import Participant, Run, open_run
from pfedes.core.payload import Payload, decode, encode, within
from pfedes.core.protocol import SUMMAND
from pfedes.deploy.coordinator.fleet import (
    Answered,
    CalledOffError,
    FlareFleet,
    NoMessage,
    coordinate,
)
from pfedes.deploy.coordinator.layout import Layout, Presence
from pfedes.deploy.coordinator.terms import with_norm
from pfedes.deploy.participant.handler import ParticipantHandler
from pfedes.deploy.participant.state import ParticipantState
from pfedes.deploy.participant.sum_part import Identity
from pfedes.securesum.masking import Integers
from summing import KilledError, forms_of

ROUNDS = 2
NAMES = ("ada", "ben", "cleo", "dora")
ROOT = authority()
PEOPLE = {name: certified(name, ROOT) for name in NAMES}
OWN = """
import numpy as np
from torch import nn


def linear(classes, shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))


def data(seed):
    rng = np.random.default_rng(seed)
    count = 42 + 6 * seed
    images = rng.integers(0, 256, (count, 8, 8)).astype(np.uint8)
    labels = np.arange(count) % 3
    return {"train": (images[6:], labels[6:]), "test": (images[:6], labels[:6])}
"""
PROTOCOL = re.compile(r"[0-9]{5}\.json|key|peers\.json")
"""What is written for a sum, and the manifest of a round."""

pytestmark = pytest.mark.usefixtures("training_here")


class Circle:
    """A coordinator and participants. Number `kill_at` of what they do in round 1 is their last."""

    def __init__(self, home: Path, people: int = 4, kill_at: int = 0) -> None:
        self.home, self.names = home, NAMES[:people]
        self.layout = Layout(home / "federation")
        self.layout.certificates.mkdir(parents=True)
        code = "\n\n".join(f"def {n}():\n    return data({i})" for i, n in enumerate(NAMES))
        (home / "own.py").write_text(f"{OWN}\n\n{code}\n")
        for name in self.names:
            (self.layout.certificates / f"{name}.crt").write_bytes(PEOPLE[name].pem)
        self.config = with_norm(
            terms(
                federation__participants=list(self.names),
                federation__classes=["a", "b", "c"],
                train__rounds=ROUNDS,
                train__batch_size=8,
                privacy__secure_sum=True,
                privacy__metadata="scores",
                privacy__clip=10.0,
                runtime__keep_rounds=3,
                runtime__report=False,
            )
        )
        self.kill_at, self.did = kill_at, 0
        self.killed = ""
        self.jobs = 0
        self.heard: list[bytes] = []  # by the coordinator

    def seat(self, name: str) -> ParticipantState:
        return ParticipantState(self.home / name)

    def run(self) -> Run:
        """Job after job, as `pfedes serve` submits them, until all is done."""
        while self.jobs < 6:
            self.jobs += 1
            self.handlers = {name: self.handler(name) for name in self.names}
            self.connected = dict.fromkeys(self.names, "1")
            self.layout.write_presence(Presence(self.connected, self.connected))
            fleet = FlareFleet(self.ask, lambda site: None, self.config, self.names, self.layout)
            try:
                coordinate(self.layout, self.config, fleet)
            except CalledOffError:
                continue
            except KilledError:
                self.killed = "the coordinator"
                continue
            return open_run(self.layout.run)
        raise AssertionError("no job comes to an end")

    def handler(self, name: str) -> ParticipantHandler:
        """A participant's process, after a restart."""
        person = Participant(
            name=name,
            model=f"{self.home}/own.py:linear",
            data=f"{self.home}/own.py:{name}",
            state=str(self.home / name),
        )
        identity = Identity(PEOPLE[name].key, ROOT.certificate)
        handler = ParticipantHandler(person, self.config.federation, self.config.privacy, identity)
        handler.seat.make()
        return handler

    def ask(self, messages: Mapping[str, Payload], timeout: int) -> Iterator[Answered]:
        for site, message in messages.items():
            is_sum = message.meta["kind"] in ("answer", "mask", "open")
            if is_sum:
                self.step()  # the coordinator's
            try:
                data = encode(self.handlers[site].handle(decode(encode(message))))
                if is_sum:
                    self.step()
            except KilledError:
                self.killed = site
                self.handlers[site] = self.handler(site)
                # It is connected again, and in no job.
                there = {**self.connected, site: "2"}
                self.layout.write_presence(Presence(there, self.connected))
                yield site, NoMessage("no answer: it left", silent=True)
                continue
            self.heard.append(data)
            yield site, decode(data)

    def step(self) -> None:
        """Whoever is at work may end here."""
        if self.killed or self.is_past_round_1:
            return
        self.did += 1
        if self.did == self.kill_at:
            raise KilledError

    @property
    def is_past_round_1(self) -> bool:
        return bool(list(self.layout.run.glob("state/*/00001.json")))

    def opened(self, name: str) -> list[tuple[int, str]]:
        """The sets that a participant has opened, by its own list of what left."""
        lines = [line["values"] for line in self.seat(name).sent() if line["kind"] == "open"]
        return [(line["up/noted"], line["up/set"]) for line in lines if "up/set" in line]

    def summand(self, run: Run, name: str, round: int) -> Integers:
        stored = self.seat(name).clients.load(run.manifest.run, name, round)
        return stored.reply.tensors[SUMMAND].numpy()


@pytest.fixture
def stepping(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives each circle a look at its writes; a kill comes before a write has its effect."""
    replace = os.replace
    at_work: list[Circle] = []

    def counted(work: Any, place: Any) -> None:
        if at_work and PROTOCOL.fullmatch(Path(place).name):
            at_work[-1].step()
        replace(work, place)

    monkeypatch.setattr(os, "replace", counted)
    monkeypatch.setattr("pfedes.deploy.coordinator.secure_sums.PAUSE", 0.0)
    return at_work


def check(circle: Circle, run: Run) -> None:
    """No round is lost, every sum is exact, and nobody has opened two sets of a round."""
    assert [(row["round"], row["status"]) for row in run.rounds] == [(1, "ok"), (2, "ok")]
    method, mechanism = run.simulation.method, run.simulation.mechanism()
    for round in (1, 2):
        before, after = (run.store.server_state(run.store.manifest(r)) for r in (round - 1, round))
        rows = [row for row in run.clients if row["round"] == round]
        names = [row["client"] for row in rows if row["status"] == "ok"]
        total = np.add.reduce([circle.summand(run, name, round) for name in names])
        change = mechanism.mean_of(total, len(names))
        moved = method.moved(before, change, run.simulation.context(round))
        assert moved.digest() == after.digest()
    for name in circle.names:
        opened = set(circle.opened(name))
        assert len({round for round, _ in opened}) == len(opened)


@pytest.mark.parametrize("apart", [8, pytest.param(1, marks=pytest.mark.repeat)])
def test_no_kill_of_anybody_loses_a_round_or_opens_it_twice(
    tmp_path: Path, stepping: list[Circle], apart: int
) -> None:
    """Between any two steps of round 1: messages, answers, and what is written for a sum.

    Several runs of two rounds take the time.
    """
    killed, at = [], apart
    while True:
        circle = Circle(tmp_path / str(at), kill_at=at)
        stepping.append(circle)
        run = circle.run()
        check(circle, run)
        if not circle.killed:
            break
        killed.append(circle.killed)
        at += apart
    assert at > 40
    assert "the coordinator" in killed
    assert set(killed) & set(NAMES)
    assert apart > 1 or set(killed) == {"the coordinator", *NAMES}


@pytest.mark.parametrize(("asked", "steps"), [("mask", 4), ("open", 3)])
def test_a_needed_participant_is_waited_for_and_the_round_is_not_lost(
    tmp_path: Path,
    stepping: list[Circle],
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    steps: int,
) -> None:
    """Three are the fewest, and there are three. Ben is killed before its answer has left.

    The steps are the message, what is written (the others' fingerprints, once, and the account of
    the sum), and the answer.
    """
    circle = Circle(tmp_path / "circle", people=3)
    stepping.append(circle)
    ask = circle.ask

    def striking(messages: Mapping[str, Payload], timeout: int) -> Iterator[Answered]:
        for site, message in messages.items():
            if (site, message.meta["kind"]) == ("ben", asked) and not circle.killed:
                circle.kill_at = circle.did + steps
            yield from ask({site: message}, timeout)

    monkeypatch.setattr(circle, "ask", striking)
    run = circle.run()
    assert (circle.killed, circle.jobs) == ("ben", 2)
    check(circle, run)
    assert {row["status"] for row in run.clients} == {"ok"}


def test_nothing_that_the_coordinator_hears_keeps_or_logs_is_of_one_participant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    circle = Circle(tmp_path / "circle")
    run = circle.run()
    check(circle, run)
    files = [p.read_bytes() for p in circle.layout.directory.rglob("*") if p.is_file()]
    everything = [*circle.heard, *files, caplog.text.encode()]
    for name in NAMES:
        for round in (1, 2):
            own = circle.summand(run, name, round)
            weight = int(own[-1])
            assert weight > 8
            forms = [form for values in (own, own // weight) for form in forms_of(values)]
            assert not [form for form in forms for data in everything if form in data]
            stored = circle.seat(name).clients.path(run.manifest.run, name, round).read_bytes()
            assert any(form in stored for form in forms)  # the search finds what is there
    said = [within("up/", decode(data).meta) for data in circle.heard]
    assert not {"samples", "loss", "zeros", "state", "flops", "seconds"} & set().union(*said)
    assert {card.samples for card in run.store.cards(run.manifest)} == {1}
    assert sum("nonce" in meta for meta in said) == ROUNDS * len(NAMES)
