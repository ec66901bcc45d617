"""A federation with a secure sum, with real processes: as its simulation, and nobody's upload."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from commands import process
from flaring import NAMES, Ground, assert_same, eventually, kill, processes, simulated
from pfedes import open_run
from pfedes.core.protocol import SUMMAND
from pfedes.deploy.participant.state import ParticipantState
from running import rows
from summing import forms_of

ROUNDS = 2


def rehearsed(home: Path, *privacy: str) -> Path:
    """A directory in which `pfedes rehearse` was gone through, with a secure sum."""
    chosen = ("secure_sum=true", *privacy)
    settings = [part for each in chosen for part in ("--set", f"privacy.{each}")]
    done = process("rehearse", "--rounds", str(ROUNDS), "--out", str(home), *settings)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("summed") / "rehearsal"
    return rehearsed(home, "clip=10", "metadata=scores")


def test_a_rehearsal_is_its_simulation_bit_for_bit(summed: Path, tmp_path: Path) -> None:
    run = open_run(summed / "federation" / "run")
    assert_same(run, simulated(summed, tmp_path / "simulated"))
    assert run.summary["mean_accuracy"] > run.summary["initial_accuracy"] + 0.3
    assert run.summary["floats_up"] == ROUNDS * len(NAMES) * 444
    assert not run.summary["rejected_uploads"]
    assert "nonce" not in run.clients[0]
    assert {row["n"] for row in run.clients} == {row["loss"] for row in run.clients} == {None}
    assert {card.samples for card in run.store.cards(run.manifest)} == {1}
    for name in NAMES:
        seat = ParticipantState(summed / name / "state")
        sent = [line for line in seat.sent() if line["kind"] in ("answer", "mask", "open")]
        assert [line["kind"] for line in sent] == ["answer", "mask", "open"] * ROUNDS
        assert [line["floats"] for line in sent if line["kind"] == "answer"] == [0] * ROUNDS
        assert {line["values"].get("up/members") for line in sent} == {None, len(NAMES)}
        joined = (summed / name / "join.txt").read_text()
        assert "your fingerprint, for the others' [peers]: sha256:" in joined
        assert "the coordinator made your key" in joined
        assert not list((seat.state / "sum").glob("*/key"))  # nothing can be opened any more
    assert "sums of at least 3" in (run.directory / "report.html").read_text()


@pytest.mark.repeat
def test_participants_add_their_noise_inside_the_sum(tmp_path: Path) -> None:
    """The same processes once more, with noise and without any metadata."""
    noise = ("mode=distributed", "noise=0.05", "clip=1", "metadata=none")
    home = rehearsed(tmp_path / "rehearsal", *noise)
    run = open_run(home / "federation" / "run")
    assert [row["status"] for row in run.rounds] == ["ok"] * ROUNDS
    assert run.summary["privacy"]["releases"] == [ROUNDS] * len(NAMES)
    assert run.summary["accuracies"] == []
    assert not list((home / "federation").rglob("noise.key"))
    for name in NAMES:
        seat = ParticipantState(home / name / "state")
        assert len(rows(seat.state / "privacy.jsonl")) == ROUNDS
        record = seat.record()
        assert record is not None
        assert record.scores is not None  # of its own, which nobody was told
        left = {key for line in seat.sent() for key in line["values"]}
        assert not left & {"up/loss", "up/samples", "up/test_correct", "test_correct"}


def test_nothing_at_the_coordinator_holds_what_one_participant_has_learned(summed: Path) -> None:
    """Every file of the federation's directory, logs and FLARE's own, is searched."""
    files = [path.read_bytes() for path in (summed / "federation").rglob("*") if path.is_file()]
    run = open_run(summed / "federation" / "run").manifest.run
    for name in NAMES:
        seat = ParticipantState(summed / name / "state")
        for round in range(1, ROUNDS + 1):
            own = seat.clients.load(run, name, round).reply.tensors[SUMMAND].numpy()
            weight = int(own[-1])
            forms = [form for values in (own, own // weight) for form in forms_of(values)]
            assert not [form for form in forms for data in files if form in data]
            # The search finds it where it is.
            stored = seat.clients.path(run, name, round).read_bytes()
            assert any(form in stored for form in forms)


@pytest.mark.repeat
def test_real_kills_lose_no_round_and_open_nothing_twice(summed: Path, tmp_path: Path) -> None:
    """kill -9 of the server with a sealed sum, of one who has masked, and of one who has opened.

    `test_secure_sum_federation.py` kills between any two steps, in one process. Here further jobs
    of FLARE must start, and processes of participants.
    """
    ground = Ground(summed, summed.with_name("ground"))
    try:
        for name in NAMES:
            ground.join(name)
        eventually(lambda: all(map(ground.is_joined, NAMES)), "everybody joins")
        ground.begin(train__rounds=4)
        with ground.serving() as coordinator:
            eventually((ground.layout.sums / "00001.json").exists, "a sealed sum", every=0.005)
            kill("pfedes.deploy.hardening.job", "server", str(ground.layout.server))
            kill("pfedes.deploy.process", "server", str(ground.layout.server))
            eventually(lambda: account(ground, "cleo", 2), "cleo is ready")
            with standing_still(ground, "cleo", 2):  # so that nobody's sum is known
                eventually(lambda: account(ground, "ben", 2).get("attempts"), "ben has masked")
                kill_site(ground, "ben")
            eventually(lambda: account(ground, "cleo", 4).get("opened"), "an opened set")
            kill_site(ground, "cleo")
            run = ground.finished(coordinator)
    finally:
        ground.end()
    assert [row["status"] for row in run.rounds] == ["ok"] * 4
    assert_same(run, simulated(ground.home, tmp_path / "simulated"))
    for name in NAMES:
        lines = [line["values"] for line in ground.seat(name).sent() if line["kind"] == "open"]
        opened = {(line["up/noted"], line["up/set"]) for line in lines if "up/set" in line}
        assert sorted(round for round, _ in opened) == [1, 2, 3, 4]


@contextmanager
def standing_still(ground: Ground, name: str, round: int) -> Iterator[None]:
    """A participant that has masked in a round and does not open meanwhile."""
    pids = processes("pfedes.deploy.hardening.job", str(ground.seat(name).directory))
    eventually(lambda: account(ground, name, round).get("attempts"), f"{name} masks", every=0.005)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert not account(ground, name, round)["opened"]
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def kill_site(ground: Ground, name: str) -> None:
    """All of a participant's processes but `pfedes join`, which starts them again."""
    for role in ("pfedes.deploy.process", "pfedes.deploy.hardening.job"):
        kill(role, str(ground.seat(name).directory))


def account(ground: Ground, name: str, round: int) -> dict[str, Any]:
    """What a participant has masked and opened in a round; nothing before it is ready."""
    for path in (ground.seat(name).state / "sum").glob(f"*/{round:05d}.json"):
        with suppress(FileNotFoundError):
            return dict(json.loads(path.read_text()))
    return {}
