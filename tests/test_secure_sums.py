"""The secure sum of a federation, message by message: both sides, and who is killed."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from certified import Holder, authority, certified
from pfedes.config import Config
from pfedes.config.participant import Participant
from pfedes.core.measures import Measures, Tally
from pfedes.core.payload import Payload, Value, decode, encode, within
from pfedes.core.protocol import MEMBER_META, SUMMAND, Reply, Task
from pfedes.core.wire import WireSpec
from pfedes.deploy.coordinator.layout import Layout, Presence
from pfedes.deploy.coordinator.secure_sums import AwayError, SecureSums
from pfedes.deploy.participant.sum_part import Identity, SumPart
from pfedes.deploy.sum_messages import SumRequest, asked_for, members_in
from pfedes.errors import PfedesError, RefusedError, WireError
from pfedes.fleet.messages import from_answer, to_answer
from pfedes.securesum.collector import Total
from pfedes.securesum.credentials import fingerprint
from pfedes.securesum.masking import Integers
from pfedes.store.client_store import ClientStore, Version
from summing import KilledError, Killer

NAMES = ("ada", "ben", "cleo", "dora")
RUN, ROUND, SIZE = "run", 1, 4
ROOT = authority()
PEOPLE = {name: certified(name, ROOT) for name in NAMES}


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    monkeypatch.setattr("pfedes.deploy.coordinator.secure_sums.PAUSE", 0.0)


def task(name: str) -> Task:
    return Task(RUN, name, ROUND, 0, Payload({"g": torch.zeros(2)}))


def summand(name: str) -> Reply:
    """What a participant's own store holds: recognisable in whatever bytes it may turn up."""
    values = torch.tensor([0x5EC2E7 + NAMES.index(name), *range(2, SIZE), 7])
    meta: dict[str, Value] = {"run": RUN, "round": ROUND, "base": 0, "samples": 7}
    return Reply(name, Payload({SUMMAND: values}, meta))


@dataclass
class Town:
    """A coordinator and participants who talk by bytes, all of which are kept."""

    home: Path
    least: int = 3
    timeout: float = 0.0
    lost: set[tuple[str, str]] = field(default_factory=set)
    peers: dict[str, Mapping[str, str]] = field(default_factory=dict)
    heard: list[bytes] = field(default_factory=list)  # by the coordinator
    opened: dict[str, set[str]] = field(default_factory=dict)
    people: dict[str, Holder] = field(default_factory=lambda: dict(PEOPLE))
    other: set[str] = field(default_factory=set)  # who answers another request than the rest

    def __post_init__(self) -> None:
        self.layout = Layout(self.home / "federation")
        self.layout.certificates.mkdir(parents=True)
        for name, holder in self.people.items():
            self.layout.certificate(name).parent.mkdir(parents=True, exist_ok=True)
            (self.layout.certificates / f"{name}.crt").write_bytes(holder.pem)
            reply = summand(name)
            self.store(name).commit(
                Version({"w": torch.zeros(1)}, task(name).identity(), reply.payload)
            )

    @property
    def config(self) -> Config:
        config = Config()
        meeting = config.federation.model_copy(update={"timeout": self.timeout})
        privacy = config.privacy.model_copy(update={"secure_sum": True, "least": self.least})
        return config.model_copy(update={"federation": meeting, "privacy": privacy})

    def store(self, name: str) -> ClientStore:
        return ClientStore(self.home / name / "clients")

    def part(self, name: str) -> SumPart:
        """A participant as it is after a restart."""
        participant = Participant(
            name=name, model="cnn1", data="folder:x", peers=self.peers.get(name, {})
        )
        identity = Identity(self.people[name].key, ROOT.certificate)
        return SumPart(participant, identity, self.least, self.home / name / "sum")

    def replies(self) -> list[Reply]:
        found = []
        for name in NAMES:
            offer = partial(self._offer, name)
            found.append(Reply(name, self._say(offer) or self._say(offer)))
        return found

    def sums(self) -> SecureSums:
        """The coordinator as it is after a restart."""
        return SecureSums(self.layout, self.ask, self.config)

    def total(self) -> Total:
        """A round, from wherever the coordinator stands."""
        tasks, sums = [task(name) for name in NAMES], self.sums()
        replies = sums.replies(tasks)
        return sums.total(tasks, self.replies() if replies is None else replies, SIZE)

    def ask(
        self, messages: Mapping[str, Payload], expected: WireSpec
    ) -> Iterator[tuple[str, Payload]]:
        for name, message in messages.items():
            kind = str(message.meta["kind"])
            if (kind, name) in self.lost:
                continue
            received = decode(encode(message))
            answer = self._say(partial(self._answer, name, kind, received))
            if answer is not None:
                expected.check(answer)
                if kind == "open":
                    self.opened.setdefault(name, set()).add(str(answer.meta["set"]))
                yield name, answer

    def _offer(self, name: str) -> Reply:
        asked = "something else" if name in self.other else asked_for(self.config, task(name))
        return self.part(name).in_place_of(summand(name), asked)

    def _answer(self, name: str, kind: str, message: Payload) -> Reply:
        return self.part(name).answer(kind, message, self.store(name))

    def _say(self, work: Callable[[], Reply]) -> Any:
        """An answer, by way of bytes; None from who was killed over it, or refuses."""
        try:
            data = encode(from_answer(work(), ""))
        except (KilledError, PfedesError):
            return None
        self.heard.append(data)
        answer, _ = to_answer(decode(data))
        assert isinstance(answer, Reply)
        return answer.payload


def expected(names: Sequence[str]) -> Integers:
    total: Integers = np.add.reduce([summand(n).payload.tensors[SUMMAND].numpy() for n in names])
    return total


def test_a_sum_travels_and_no_summand_does(tmp_path: Path) -> None:
    """Everything that the coordinator heard or keeps is searched for what anybody added."""
    town = Town(tmp_path)
    total = town.total()
    assert total.names == NAMES
    assert (total.values == expected(NAMES)).all()
    kept = [path.read_bytes() for path in town.layout.directory.rglob("*") if path.is_file()]
    assert len(town.heard) == 3 * len(NAMES)
    assert any(b"masked" in data for data in kept)
    for name in NAMES:
        tensor = summand(name).payload.tensors[SUMMAND]
        for form in forms_of(tensor.numpy()):
            assert not [data for data in (*town.heard, *kept) if form in data]
        # The search finds what is there.
        assert any(form in encode(summand(name).payload) for form in forms_of(tensor.numpy()))


def forms_of(values: Integers) -> list[bytes]:
    """A number that only its owner has, as it would look in bytes, base64 or text."""
    own = values[:1]
    raw = own.astype("<i8").tobytes()
    inside = base64.b64encode(raw)[:8]  # of the first six bytes
    return [raw, raw[::-1], inside, str(int(own[0])).encode(), raw.hex().encode()]


def test_an_answer_says_that_a_summand_is_ready_and_nothing_of_it(tmp_path: Path) -> None:
    measures = Measures(Tally(()), Tally(((0, 0, 7),)))
    done = replace(summand("ada"), measures=measures)
    reply = Town(tmp_path).part("ada").in_place_of(done, "something")
    assert reply.payload.tensors == {}
    assert reply.measures is measures  # which leave if they are shared
    own = summand("ada").payload.meta
    assert reply.payload.meta.keys() == {*own, *MEMBER_META}
    WireSpec(meta=MEMBER_META).check(
        Payload({}, {k: v for k, v in reply.payload.meta.items() if k in MEMBER_META})
    )


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.repeat)])
def test_no_kill_loses_a_round_or_opens_it_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Every so manieth write of any process is the last that it does."""
    at, served = 0, 0
    while True:
        at += step
        town = Town(tmp_path / str(at))
        with monkeypatch.context() as patch:
            killer = Killer(patch, at)
            try:
                total = town.total()
            except KilledError:  # the coordinator
                served += 1
                total = town.total()
        assert len(total.names) >= 3
        assert (total.values == expected(total.names)).all()
        assert all(len(sets) == 1 for sets in town.opened.values())
        again = town.total()  # killed once more, before the round was committed
        assert again.names == total.names
        assert (again.values == total.values).all()
        if killer.calls < at:
            break
    assert at > 30
    assert served == 6 if step == 1 else served


def test_a_needed_participant_that_came_back_is_asked_in_the_next_job(tmp_path: Path) -> None:
    town = Town(tmp_path, timeout=60, lost={("open", "ada"), ("open", "ben")})
    connected = dict.fromkeys(NAMES, "1")
    town.layout.write_presence(Presence({**connected, "ada": "2"}, connected))
    with pytest.raises(AwayError, match="ada can continue"):
        town.total()
    town.lost = set()
    assert town.sums().selected(RUN, ROUND) == list(NAMES)
    assert town.sums().selected("another", ROUND) == []
    assert (town.total().values == expected(NAMES)).all()
    town.sums().forget(but=ROUND + 1)
    assert town.sums().selected(RUN, ROUND) == []


def test_a_sealed_sum_of_other_tasks_is_dropped(tmp_path: Path) -> None:
    town = Town(tmp_path)
    town.total()
    other = [Task(RUN, name, ROUND, 0, Payload({"g": torch.ones(2)})) for name in NAMES]
    assert town.sums().replies(other) is None
    assert not list(town.layout.sums.glob("*"))


def test_who_was_asked_for_something_else_is_left_out(tmp_path: Path) -> None:
    """The server hears by the name of the set that dora means another one."""
    town = Town(tmp_path, other={"dora"})
    assert town.total().names == ("ada", "ben", "cleo")
    assert "dora" not in town.opened


def test_too_few_are_not_summed(tmp_path: Path) -> None:
    town = Town(tmp_path, lost={("mask", "ada"), ("mask", "ben")})
    with pytest.raises(WireError, match="2 can take part in the sum, 3 are the fewest"):
        town.total()
    assert not town.opened


def test_a_participant_that_nobody_compared_is_in_no_sum(tmp_path: Path) -> None:
    """A participant that the coordinator made up would open whatever the coordinator likes."""
    prints = {n: fingerprint(h.key.public_key()) for n, h in PEOPLE.items()}
    town = Town(tmp_path, peers={"ada": {n: prints[n] for n in ("ben", "cleo")}})
    assert town.total().names == ("ben", "cleo", "dora")
    assert "ada" not in town.opened


def test_a_forged_key_is_refused_by_everybody(tmp_path: Path) -> None:
    """The coordinator signs certificates: it may hand itself one in ben's name, later."""
    town = Town(tmp_path)
    members = _asked(town, "ada")
    town.part("ada").answer("mask", members, town.store("ada"))
    town.people["ben"] = certified("ben", ROOT)
    (town.layout.certificates / "ben.crt").write_bytes(town.people["ben"].pem)
    with pytest.raises(RefusedError, match="ben has another key"):
        town.part("ada").answer("mask", _asked(town, "ada"), town.store("ada"))


def _asked(town: Town, name: str) -> Payload:
    """What the coordinator would send to have this one mask."""
    messages: dict[str, Payload] = {}

    def ask(sent: Mapping[str, Payload], expected: WireSpec) -> Iterator[tuple[str, Payload]]:
        messages.update(sent)
        yield from ()

    sums = SecureSums(town.layout, ask, town.config)
    with pytest.raises(WireError):
        sums.total([task(n) for n in NAMES], town.replies(), SIZE)
    return messages[name]


@pytest.mark.parametrize(
    "meta",
    [
        {"run": "../x"},
        {"run": 3},
        {"round": 0},
        {"round": True},
        {"round": 2},
        {"members": "[]"},
        {"members": "{"},
        {"members": 3},
    ],
    ids=str,
)
def test_a_malformed_request_to_mask_is_refused(tmp_path: Path, meta: dict[str, Value]) -> None:
    town = Town(tmp_path)
    message = _asked(town, "ada")
    with pytest.raises(PfedesError):
        town.part("ada").answer("mask", Payload({}, {**message.meta, **meta}), town.store("ada"))


def test_a_malformed_request_to_open_is_refused(tmp_path: Path) -> None:
    town = Town(tmp_path)
    message = _asked(town, "ada")
    digest = town.part("ada").answer("mask", message, town.store("ada")).payload.meta["set"]
    request = SumRequest("ada", RUN, ROUND)
    good = request.to_open(bytes.fromhex(str(digest)), [bytes(94)] * len(members_in(message)))
    for meta, tensors in (
        ({"set": "x"}, good.tensors),
        ({"set": 3}, good.tensors),
        ({"round": 10**300}, good.tensors),
        ({}, {}),
        ({}, {"shares": torch.zeros(4, 93, dtype=torch.uint8)}),
        ({}, {"shares": torch.zeros(4, 94)}),
        ({}, good.tensors),  # nobody else has masked
    ):
        message = Payload(tensors, {**good.meta, **meta})
        with pytest.raises(WireError):
            town.part("ada").answer("open", message, town.store("ada"))
    account = json.loads((tmp_path / "ada" / "sum" / RUN / "00001.json").read_text())
    assert account["opened"] == ""


def test_what_is_said_of_a_sum_names_the_set_and_how_many_are_in_it(tmp_path: Path) -> None:
    town = Town(tmp_path)
    town.total()
    said = [within("up/", decode(data).meta) for data in town.heard]
    sets = [meta for meta in said if "set" in meta]
    assert len(sets) == 2 * len(NAMES)
    assert {meta["members"] for meta in sets} == {len(NAMES)}
    assert len({meta["set"] for meta in sets}) == 1


def test_a_run_that_has_ended_leaves_no_key(tmp_path: Path) -> None:
    town = Town(tmp_path)
    town.total()
    assert (tmp_path / "ada" / "sum" / RUN / "key").exists()
    town.part("ada").forget(RUN)
    (left,) = (tmp_path / "ada" / "sum" / RUN).iterdir()
    account = json.loads(left.read_text())
    assert account["attempts"] == {}
    assert account["opened"]
