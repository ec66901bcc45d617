"""Participants who keep the others waiting are asked less and less; honest ones are not."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from hypothesis import given
from hypothesis import strategies as st
from nvflare.private.defs import CellMessageHeaderKeys, new_cell_message
from nvflare.private.fed.server import job_runner
from nvflare.private.fed.server.fed_server import FederatedServer

from pfedes import StoreError, cli
from pfedes.core.payload import Payload
from pfedes.deploy import blame
from pfedes.deploy.coordinator.fleet import CalledOffError, NoMessage
from pfedes.deploy.coordinator.layout import Layout, Presence
from pfedes.deploy.coordinator.quorum import gather
from pfedes.deploy.coordinator.serve import Serving
from pfedes.deploy.coordinator.status import status_of
from pfedes.deploy.coordinator.strikes import FORGIVEN_AFTER, LONGEST_PAUSE, Strike, Strikes
from sites import Sites

ROUNDS = 40
SILENCE = NoMessage("no answer: TIMEOUT", silent=True, struck=True)


class Federation(Sites):
    """Three participants, one of whom is a nuisance, and a server that starts new jobs."""

    def __init__(self, layout: Layout, **settings: Any) -> None:
        people = {"federation.participants": ["ada", "ben", "eve"], "train.rounds": ROUNDS}
        super().__init__(layout, **{**people, **settings})
        self.shapes["eve"] = (3, 8, 8)
        layout.config.write_text(self.config.to_toml())
        self.serving = Serving(layout, lambda text: None)
        self.connected = {name: f"{name}-0" for name in self.shapes}
        self.jobs = 0
        self.heard_at_once = True

    def beckon(self, site: str) -> None:
        if self.heard_at_once:
            self.fleet.heard(site)

    def serve(self) -> None:
        """Job after job, as `pfedes serve` submits them, until the run is finished."""
        while True:
            found = gather(self.layout, self.config, self.connected, 999)
            assert found.is_ready
            self.serving._strikes.pardon(found.pardoned, "too few")
            in_job = {name: self.connected[name] for name in found.sites}
            self.serving._note(Presence(dict(self.connected), in_job))
            self.serving._job = f"job {self.jobs}"
            self.jobs += 1
            everybody, self.shapes = self.shapes, {n: self.shapes[n] for n in found.sites}
            try:
                self.coordinate()
                return
            except CalledOffError:
                self.serving._strike_enders()
            finally:
                self.shapes = everybody

    def asked_for(self, kind: str, site: str) -> int:
        return self.asked.count((site, kind))

    def reconnect(self, site: str) -> None:
        name, _, number = self.connected[site].rpartition("-")
        self.connected[site] = f"{name}-{int(number) + 1}"
        self.serving._meet(dict(self.connected))


class Stalling(Federation):
    """eve says that she is free, and never answers a task."""

    def answer(self, site: str, kind: str) -> Payload | NoMessage:
        return SILENCE if (site, kind) == ("eve", "answer") else super().answer(site, kind)


class Reconnecting(Federation):
    """eve answers, and leaves the job for a new session after every round."""

    def answer(self, site: str, kind: str) -> Payload | NoMessage:
        found = super().answer(site, kind)
        if (site, kind) == ("eve", "answer"):
            self.reconnect("eve")
        return found


class Ending(Federation):
    """eve says in every job that her part of it has failed, which ends it for everybody."""

    def answer(self, site: str, kind: str) -> Payload | NoMessage:
        if (site, kind) == ("eve", "answer"):
            self.layout.write_ended(self.serving._job, ["eve"])
            raise CalledOffError("the job was aborted")
        return super().answer(site, kind)


def test_a_participant_that_never_answers_is_asked_less_and_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every time would cost the others a whole timeout."""
    people = Stalling(Layout(tmp_path / "federation"))
    people.serve()
    assert people.asked_for("answer", "ada") == people.asked_for("answer", "ben") == ROUNDS
    # In rounds 1, 2, 4, 8, 16 and 32.
    assert people.asked_for("answer", "eve") == 6
    assert "eve has strike 3: no answer: TIMEOUT; it is not asked before round 8" in caplog.text
    assert "eve's pause is over: it is asked again from round 8 on" in caplog.text
    assert people.jobs == 1


def test_a_participant_that_always_reconnects_no_longer_ends_every_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    people = Reconnecting(Layout(tmp_path / "federation"))
    people.serve()
    assert people.asked_for("answer", "ada") == people.asked_for("answer", "ben") == ROUNDS
    assert people.jobs <= 7
    assert "eve has strike 2: it left a job and came back" in caplog.text


def test_a_participant_that_ends_every_job_is_left_out_of_most(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    people = Ending(Layout(tmp_path / "federation"))
    people.serve()
    # Twice in round 1, and in rounds 3, 7, 15 and 31.
    assert people.asked_for("answer", "eve") == 6
    assert people.jobs == 11
    assert "eve has strike 2: its part of a job failed, which ended the job" in caplog.text
    # What ended another job is nobody's fault in this one.
    people.serving._job = "another"
    before = Strikes(people.layout.strikes).accounts()
    people.serving._strike_enders()
    assert Strikes(people.layout.strikes).accounts() == before


def test_nobody_delays_a_job_by_silence_about_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = Federation(Layout(tmp_path / "federation")).serving
    begun: list[Any] = []

    def begin() -> None:
        begun.append(serving.engine.limits["NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT"])
        raise StoreError("as far as here")

    monkeypatch.setattr(serving.engine, "keep_alive", begin)
    monkeypatch.setattr("pfedes.deploy.coordinator.serve.write_server", lambda place, config: None)
    with pytest.raises(StoreError, match="as far as here"):
        serving.run()
    assert begun == ["30"]


def test_nor_does_it_keep_a_federation_from_beginning(tmp_path: Path) -> None:
    """Where the quorum is reached without it."""
    people = Federation(Layout(tmp_path / "federation"))
    for job in ("1", "2"):
        people.layout.write_ended(job, ["eve"])
        people.serving._job = job
        people.serving._strike_enders()
    everybody = ["ada", "ben", "eve"]
    for quorum, sites, pardoned in (
        (2, ["ada", "ben"], []),
        (3, everybody, ["eve"]),
        (0, everybody, ["eve"]),  # as many as there are: who is not asked would end it
    ):
        config = people.configured(
            **{"federation.participants": everybody, "federation.quorum": quorum}
        )
        found = gather(people.layout, config, people.connected, 0)
        assert (found.sites, found.pardoned, found.is_ready) == (sites, pardoned, True)


JOB = "5f0c0b52-7a3e-4d0b-9d7e-0f6f3a1c2b11"


def test_by_whose_word_a_job_ends_is_written_down_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "federation").mkdir()
    layout = Layout(tmp_path / "federation")
    seen: list[list[str]] = []

    def act(*_: Any, **__: Any) -> None:
        seen.append(layout.ended()[1])

    def start(self: Any, job_id: str) -> None:
        said = {"ada": "started", "dan": "NVFLARE_ERROR: no", "eve": None}
        replies = [
            SimpleNamespace(client_name=name, reply=SimpleNamespace(body=body))
            for name, body in said.items()
        ]
        job_runner.check_client_replies(replies, ["ada", "dan"], "start job")

    monkeypatch.setattr(FederatedServer, "process_job_failure", act)
    monkeypatch.setattr(job_runner, "check_client_replies", act)
    monkeypatch.setattr(job_runner.JobRunner, "_start_run", start)
    blame.install(layout)
    people = {name: SimpleNamespace(name=name) for name in ("ada", "ben", "eve")}
    runner = SimpleNamespace(is_client_outcome_pending=lambda job, name: name != "ben")
    server: Any = SimpleNamespace(
        client_manager=SimpleNamespace(clients=people), engine=SimpleNamespace(job_runner=runner)
    )
    for token, said, named in (
        ("ada", {"job_id": JOB, "code": 0}, []),  # it has ended well
        ("ada", {"job_id": JOB, "code": -9}, []),  # FLARE does nothing about that
        ("ben", {"job_id": JOB, "code": 101}, []),  # is not in it
        ("x", {"job_id": JOB, "code": 101}, []),
        ("ada", "nonsense", []),
        ("eve", {"job_id": JOB, "code": 101}, ["eve"]),
        ("eve", {"job_id": JOB, "code": 102}, ["eve"]),
        ("ada", {"job_id": JOB, "code": 9}, ["eve", "ada"]),
    ):
        request = new_cell_message({CellMessageHeaderKeys.TOKEN: token}, said)
        FederatedServer.process_job_failure(server, request)
        assert seen.pop() == named
    job_runner.JobRunner._start_run(server, job_id="another")
    assert seen.pop() == ["dan"]
    assert layout.ended() == ("another", ["dan"])


def test_strikes_outlive_the_coordinator_and_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = Stalling(Layout(tmp_path / "federation"), **{"train.rounds": 9})
    people.serve()
    person = status_of(people.layout).people[2]
    assert (person.name, person.strikes, person.paused_until) == ("eve", 4, 16)
    assert cli.execute(["status", str(people.layout.directory)]) == 0
    assert "4 strikes, not asked before round 16" in " ".join(capsys.readouterr().out.split())
    assert cli.execute(["status", str(people.layout.directory), "--json"]) == 0
    assert '"paused_until": 16' in capsys.readouterr().out

    # Another process, the same accounts.
    later = gather(people.layout, people.configured(**{"train.rounds": 20}), people.connected, 999)
    assert later.sites == ["ada", "ben"]
    assert later.is_ready


def test_a_participant_that_was_slow_once_misses_one_round_at_most(tmp_path: Path) -> None:
    people = Federation(Layout(tmp_path / "slow"))
    people.unable["eve", "answer"] = [SILENCE.why]
    people.serve()
    assert people.asked_for("answer", "eve") == ROUNDS
    assert Strikes(people.layout.strikes).accounts() == {}  # forgiven

    class Restarting(Reconnecting):
        def reconnect(self, site: str) -> None:
            if self.jobs == 1:
                super().reconnect(site)

    people = Restarting(Layout(tmp_path / "restarted"))
    people.serve()
    assert people.jobs == 2
    assert people.asked_for("answer", "eve") == ROUNDS


def test_a_pause_never_stops_a_federation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without eve there would be no round: the others have to wait for her, and do."""
    people = Stalling(Layout(tmp_path / "in a job"), **{"train.min_uploads": 3, "train.rounds": 5})
    people.serve()
    assert people.asked_for("answer", "eve") == 5
    assert "eve is asked in spite of its pause" in caplog.text

    # Nor does it keep a job from beginning that needs everybody.
    later = {"train.rounds": 9, "federation.participants": list(people.shapes)}
    strict = people.configured(**{**later, "federation.quorum": 3})
    found = gather(people.layout, strict, people.connected, 999)
    assert (found.sites, found.pardoned, found.is_ready) == (["ada", "ben", "eve"], ["eve"], True)
    relaxed = people.configured(**{**later, "federation.quorum": 2})
    found = gather(people.layout, relaxed, people.connected, 999)
    assert (found.sites, found.pardoned, found.is_ready) == (["ada", "ben"], [], True)


@given(st.lists(st.booleans(), min_size=1, max_size=400))
def test_strikes_do_not_depend_on_the_order_of_answers(answers: list[bool]) -> None:
    strike, asked, missed, pauses = Strike(), 0, 0, 0
    for round in range(1, len(answers) + 1):
        if strike.pauses(round):
            pauses += 1
            continue
        asked += 1
        if not answers[asked - 1]:
            missed += 1
            strike = strike.struck(SILENCE.why, round)
            assert strike.pauses(round + 1) == (strike.count > 1)
        elif strike.count:
            strike = strike.after_answer()
    # Nobody is paused for its first strike, nor for longer than the longest pause.
    assert pauses <= LONGEST_PAUSE * max(0, missed - 1)
    # What ten rounds answered in a row did not lift is still there.
    assert missed - (asked - missed) // FORGIVEN_AFTER <= strike.count <= missed


def test_a_participant_that_never_answers_is_asked_once_in_64_rounds_in_the_end() -> None:
    strike, asked = Strike(), []
    for round in range(1, 400):
        if not strike.pauses(round):
            asked.append(round)
            strike = strike.struck(SILENCE.why, round)
    assert asked == [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384]


def test_strikes_of_a_participant_can_be_forgotten(tmp_path: Path) -> None:
    strikes = Strikes(tmp_path / "strikes.json")
    strikes.forget("ben")
    for name in ("ada", "ben"):
        strikes.give(name, "no answer", 1)
    strikes.forget("ben")
    assert strikes.accounts().keys() == {"ada"}
