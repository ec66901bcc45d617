"""What befalls single participants before and between rounds costs nobody else anything."""

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from pfedes import ConfigError, FailedRunError, MethodError, PFedES, open_run
from pfedes.core.client import Card
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State
from pfedes.deploy.coordinator.fleet import (
    CalledOffError,
    NoMessage,
    untold,
)
from pfedes.deploy.coordinator.layout import Layout
from sites import SILENCE, Sites


def test_a_participant_silent_before_the_first_round_does_not_end_the_command(
    tmp_path: Path,
) -> None:
    sites = Sites(Layout(tmp_path / "all"))
    sites.unable["ben", "score"] = [SILENCE.why]
    with pytest.raises(CalledOffError, match="ben cannot be evaluated: no answer"):
        sites.coordinate()
    assert sites.coordinate().manifest.clients.keys() == {"ada", "ben"}
    sites = Sites(Layout(tmp_path / "failed"))
    sites.unable["ben", "score"] = ["failed"]
    with pytest.raises(MethodError, match="ben cannot be evaluated: failed"):
        sites.coordinate()

    # Where a quorum suffices, it begins without.
    sites = Sites(Layout(tmp_path / "quorum"), **{"federation.quorum": 1})
    sites.unable["ben", "score"] = [SILENCE.why]
    run = sites.coordinate()
    assert run.store.manifest(run.store.rounds()[-1]).clients.keys() == {"ada"}


def test_rounds_that_could_only_fail_are_waited_for(tmp_path: Path) -> None:
    sites = Sites(Layout(tmp_path / "federation"), **{"train.min_uploads": 2})
    sites.unable["ben", "answer"] = [SILENCE.why]
    with pytest.raises(CalledOffError, match="1 can be reached, but a round needs 2"):
        sites.coordinate()
    run = open_run(sites.layout.run)
    assert [row["status"] for row in run.rounds] == ["failed"]
    assert {standing.version for standing in run.manifest.clients.values()} == {0}
    sites.unable["ben", "enroll"] = [SILENCE.why]
    with pytest.raises(CalledOffError, match="1 of 2 take part"):
        sites.coordinate()
    assert [row["round"] for row in sites.coordinate().rounds] == [1, 2, 3]


def test_what_fails_at_the_coordinator_names_the_command_that_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A federation's run is none that 'pfedes resume' could continue."""

    def download(self: PFedES, state: State, card: Card, ctx: Context) -> Payload:
        if ctx.round == 2:
            raise ValueError("of round 2")
        return honest(self, state, card, ctx)

    honest = PFedES.download
    monkeypatch.setattr(PFedES, "download", download)
    sites = Sites(Layout(tmp_path / "federation"))
    with pytest.raises(FailedRunError) as failed:
        sites.coordinate()
    text = str(failed.value)
    assert text.startswith("download() of pfedes failed in round 2: ValueError: of round 2 (test_")
    assert text.endswith("Fix that, then run 'pfedes serve'")


def test_the_roster_decides_whether_a_round_can_succeed(tmp_path: Path) -> None:
    """Not the names in the configuration: who never came is asked for nothing."""
    settings = {"federation.quorum": 1, "train.min_uploads": 2}
    sites = Sites(Layout(tmp_path / "federation"), **settings)
    sites.unable["ben", "enroll"] = ["failed"]
    with pytest.raises(ConfigError, match="min_uploads = 2, but a round selects 1 of 1 clients"):
        sites.coordinate()
    assert not sites.layout.run.exists()


def test_the_end_is_told_to_fewer_than_a_quorum(tmp_path: Path) -> None:
    settings = {"federation.quorum": 2, "train.min_uploads": 2, "train.rounds": 1}
    sites = Sites(Layout(tmp_path / "federation"), **settings)
    sites.unable["ben", "notice"] = [SILENCE.why]
    assert untold(sites.layout, sites.coordinate()) == {"ben"}
    del sites.shapes["ada"]
    assert untold(sites.layout, sites.coordinate()) == set()


def test_a_participant_that_could_not_take_part_is_asked_again(tmp_path: Path) -> None:
    sites = Sites(Layout(tmp_path / "federation"), **{"federation.quorum": 1})
    sites.shapes |= {"cleo": (3, 9, 9)}
    sites.unable["ben", "enroll"] = ["failed", "failed"]
    sites.unable["cleo", "enroll"] = ["refused"]
    run = sites.coordinate()
    assert run.manifest.clients.keys() == {"ada", "ben"}
    assert [row["selected"] for row in run.rounds] == [1, 1, 2]
    greeted = [site for site, kind in sites.asked if kind == "enroll"]
    assert greeted == ["ada", "ben", "cleo", "ben", "ben"]


def test_a_newcomer_who_does_not_fit_is_left_out_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sites = Sites(Layout(tmp_path / "federation"), **{"train.rounds": 1})
    sites.coordinate()
    sites.config = sites.configured(**{"train.rounds": 2})
    sites.shapes |= {"cleo": (1, 8, 8), "dan": (3, 9, 9)}
    run = sites.coordinate()
    assert run.manifest.clients.keys() == {"ada", "ben", "dan"}
    assert "cleo is not admitted: cleo" in caplog.text


def test_a_command_that_is_killed_in_a_round_repeats_that_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had come in of it is lost with the command; the rounds before it are not."""
    sites = Sites(Layout(tmp_path / "federation"))
    answer = sites.answer

    def killed(site: str, kind: str) -> Payload | NoMessage:
        if (site, kind) == ("ben", "answer") and sites.asked.count((site, kind)) == 2:
            raise KeyboardInterrupt  # nothing of ours catches it, as nothing catches kill -9
        return answer(site, kind)

    monkeypatch.setattr(sites, "answer", killed)
    with pytest.raises(KeyboardInterrupt):
        sites.coordinate()
    monkeypatch.setattr(sites, "answer", answer)
    assert [row["round"] for row in open_run(sites.layout.run).rounds] == [1]
    assert [row["round"] for row in sites.coordinate().rounds] == [1, 2, 3]
    rounds = sites.asked.count(("ben", "answer"))
    assert rounds == 4  # the second one twice
