"""Federations across machines, on one: real processes, mutual TLS, and what goes wrong."""

import json
import os
from itertools import chain
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from commands import process as command
from flaring import (
    NAMES,
    PATIENCE,
    Ground,
    accepted,
    assert_same,
    comparable,
    eventually,
    kill,
    processes,
    simulated,
    standings,
    who_answered,
)
from pfedes import StoreError, cli, open_run
from pfedes.deploy.participant.standing import JOIN_LOCK
from pfedes.deploy.participant.state import ParticipantState
from pfedes.deploy.rehearsal import write_participant
from pfedes.formatting import percent
from pfedes.store.lock import alone


def libraries(pid: int) -> set[str]:
    """Names of the shared libraries that a process has loaded."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line.split()[-1]).name for line in lines if ".so" in line}


def test_a_waiting_participant_does_not_load_torch(ground: Ground) -> None:
    """Neither `pfedes join`, once it has checked all, nor FLARE's process below it."""
    seat = ground.seat("ada").directory
    (site,) = eventually(lambda: processes("pfedes.deploy.process", str(seat)), "ada's site", 60)
    joined = ground.joined("ada").pid
    for pid in (joined, site):
        found = libraries(pid)
        assert not {name for name in found if "torch" in name}, pid
        assert any(name.startswith("libc") for name in found)
    assert any("torch" in name for name in libraries(os.getpid()))  # it can be seen
    # It is the process that checked everything, with the lock that it took then.
    with (
        pytest.raises(StoreError, match="taken"),
        alone(seat / JOIN_LOCK, "taken"),
    ):
        pass


def test_a_rehearsal_is_its_simulation_bit_for_bit(rehearsal: Path, tmp_path: Path) -> None:
    """The rehearsal takes the time: a server, three participants and their jobs import torch."""
    run = open_run(rehearsal / "federation" / "run")
    alone = simulated(rehearsal, tmp_path / "simulated")
    assert_same(run, alone)
    seats = {name: ParticipantState(rehearsal / name / "state") for name in NAMES}
    for name, seat in seats.items():
        plain = accepted(seat, name)
        assert alone.manifest.clients[name].digest == plain
        assert run.manifest.clients[name].digest == seat.answers.keyed(plain) != plain
    assert (
        {row["flops"] for row in run.clients} == {row["seconds"] for row in run.clients} == {None}
    )
    assert run.summary["flops"] is None
    spent = sum(answer.flops for seat in seats.values() for answer in seat.answers.all())
    assert spent == alone.summary["flops"] > 0
    assert run.summary["mean_accuracy"] > run.summary["initial_accuracy"] + 0.3

    # What left is what was counted, number by number.
    sent = [line for seat in seats.values() for line in seat.sent()]
    assert sum(line["floats"] for line in sent) == run.summary["floats_up"] == 3 * 3 * 443
    assert {line["kind"] for line in sent} == {"enroll", "score", "answer", "notice"}
    said_to_ada = (rehearsal / "ada" / "join.txt").read_text()
    assert "leaves in every round of pfedes: 443 numbers" in said_to_ada
    assert "round 3 was accepted" in said_to_ada
    assert "1,329 numbers" in (rehearsal / "said.txt").read_text()

    # The coordinator's run has a report, and nobody's model.
    page = (run.directory / "report.html").read_text()
    assert "participants keep their models and data to themselves" in page
    assert not list((run.directory / "state" / "clients").rglob("*.safetensors"))
    done = command("predict", str(run.directory), "--client", "ada", "x.png")
    assert done.returncode == 2
    assert "on its own machine" in done.stderr

    # Status, with the server gone.
    shown = command("status", str(rehearsal / "federation"), "--json")
    assert shown.stderr == ""
    tree = json.loads(shown.stdout)
    assert (tree["server"], tree["round"], tree["rounds"], tree["finished"]) == (False, 3, 3, True)
    assert [person["name"] for person in tree["people"]] == NAMES

    # Everybody uses their model without the coordinator.
    hidden = (rehearsal / "federation").rename(rehearsal / "gone")
    try:
        for name, seat in seats.items():
            client = alone.simulation.population.client(name)
            Image.fromarray(client.test.inputs[0].numpy()).save("x.png")
            for extra in ([], ["--best"]):
                words = ["predict", str(seat.directory), "x.png", "--json", *extra]
                assert cli.execute(words) == 0
            assert cli.execute(["export", str(seat.directory), "--out", f"out-{name}"]) == 0
            card = Path(f"out-{name}", "README.md").read_text()
            assert "It answered 3 rounds with 1,329 numbers in all" in card
            scores = seat.personal().facts.scores
            assert scores.plain == run.manifest.clients[name].scores
    finally:
        hidden.rename(rehearsal / "federation")


def test_killed_training_and_a_killed_server_change_nothing(ground: Ground, tmp_path: Path) -> None:
    """Two jobs of FLARE one after another take the time."""
    ground.begin(train__rounds=2)
    ground.hold("ben", "cleo")
    with ground.serving() as coordinator:
        ground.await_held("ben", "cleo")
        kill("pfedes.fleet.worker_main", str(ground.seat("ben").directory))
        ground.release("ben")
        eventually(lambda: ground.seat("ben").answered().keys() == {1}, "ben's answer")
        kill("pfedes.deploy.hardening.job", "server", str(ground.layout.server))
        kill("pfedes.deploy.process", "server", str(ground.layout.server))
        ground.release("cleo")
        run = ground.finished(coordinator)
    assert [row["round"] for row in run.rounds] == [1, 2]
    log = (ground.seat("ben").directory / "join.log").read_text()
    assert "a worker died on ben" in log
    # A participant that comes back too late after the restart misses that round, as documented.
    same = simulated(ground.home, tmp_path / "simulated", select=who_answered(run))
    assert standings(run) == standings(same)
    assert run.manifest.server_digest == same.manifest.server_digest
    if all(row["status"] == "ok" for row in run.clients):
        assert comparable(run) == comparable(same)
    assert ground.states() == {name: s.digest for name, s in run.manifest.clients.items()}


def test_a_killed_participant_returns_and_a_new_one_is_admitted(
    ground: Ground, tmp_path: Path
) -> None:
    """Both are let in between two rounds; the new one asks what it is good for, and leaves.

    Three jobs of FLARE one after another take the time.
    """
    ground.begin(train__rounds=4)
    file = write_participant(ground.home / "dan", "dan", 0, 4)
    file.write_text(f'{file.read_text()}methods = ["pfedes", "standalone"]\ncompare_alone = true\n')
    with ground.serving() as coordinator:
        done = ground.hold_in_round_2("cleo", while_waiting_for="ada")
        shown = json.loads(command("status", str(ground.layout.directory), "--json").stdout)
        assert shown["server"]
        assert [person["connected"] for person in shown["people"]] == [True] * 3
        assert cli.execute(["admit", "dan", "--federation", str(ground.layout.directory)]) == 0
        dan = ground.join("dan", leave=True)
        eventually(lambda: ground.is_joined("dan"), "dan joins")
        for role in ("pfedes.deploy.process", "pfedes.deploy.hardening.job"):
            kill(role, str(ground.seat("cleo").directory))
        ground.release("cleo")
        run = ground.finished(coordinator)
    assert dan.wait(PATIENCE) == 0
    assert "cleo is connected again" in ground.said()
    assert [row["status"] for row in run.rounds] == ["ok"] * 4
    missed = {row["round"] for row in run.clients if row["status"] != "ok"}
    assert min(missed) == done + 1
    assert {row["client"] for row in run.clients if row["status"] != "ok"} == {"cleo"}
    assert "dan is admitted after round" in (ground.layout.run / "run.log").read_text()
    assert {name: s.version for name, s in run.manifest.clients.items()} == dict.fromkeys(
        [*NAMES, "dan"], 4
    )
    undisturbed = simulated(ground.home, tmp_path / "simulated")
    assert comparable(run)[:done] == comparable(undisturbed)[:done]

    rounds = len(ground.seat("dan").answered())
    alone = simulated(ground.home, tmp_path / "alone", "dan", method__name="standalone",
                      train__rounds=rounds)  # fmt: skip
    told = (ground.home / "dan" / "join.txt").read_text()
    assert (
        f"{percent(alone.summary['mean_accuracy'])} after training alone for as many rounds" in told
    )


def test_a_straggler_and_an_exception_cost_their_own_round_only(ground: Ground) -> None:
    """A job of FLARE takes the time, and a timeout of 10 s."""
    ground.begin(train__rounds=3, federation__timeout=10)
    ground.hold("ada", "ben")
    with ground.serving() as coordinator:
        ground.await_held("ada", "ben")
        trouble = ground.home / "ben" / "raise"
        trouble.touch()
        ground.release("ben")
        eventually(lambda: not trouble.exists(), "ben's model raises")
        ground.hold("ben")
        ground.await_held("ben")  # in the second round: the first has ended without ada
        ground.release("ada")
        log = ground.layout.run / "run.log"
        eventually(lambda: "ada is free again" in log.read_text(), "ada is free")
        ground.release("ben")
        run = ground.finished(coordinator)
    reasons = [(row["round"], row["client"], row["reason"].lower()) for row in run.clients]
    # Of what ben's model said, not a word.
    assert [row for row in reasons if row[2]] == [
        (1, "ada", "no answer: timeout"),
        (1, "ben", "failed"),
    ]
    assert [row["selected"] for row in run.rounds] == [3, 2, 3]
    assert {name: s.version for name, s in run.manifest.clients.items()} == dict.fromkeys(NAMES, 3)
    assert "patient 7" in (ground.seat("ben").directory / "join.log").read_text()
    coordinators = [ground.layout.run.rglob("*"), ground.layout.server.rglob("*")]
    for file in (ground.layout.directory / "server.log", *chain(*coordinators)):
        assert not file.is_file() or b"patient 7" not in file.read_bytes()
