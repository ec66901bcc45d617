"""Coordinator and participants compare versions when they meet, and refuse what does not fit."""

import time
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from guests import ada, terms
from pfedes import MethodError, WireError
from pfedes.deploy import versions
from pfedes.deploy.participant.handler import ParticipantHandler
from pfedes.deploy.versions import check_versions, enrolment_message, own_versions

OWN = {"protocol": versions.PROTOCOL, "pfedes": "0.1.0", "torch": "2.13.0", "nvflare": "2.9.0"}


@pytest.fixture(autouse=True)
def _known_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "own_versions", lambda: dict(OWN))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, None),
        ({"pfedes": "0.1.7"}, None),
        ({"pfedes": "0.2.0"}, r"ben runs pfedes 0\.2\.0 \(protocol 1\), this side runs 0\.1\.0"),
        ({"pfedes": "1.1.0"}, "install the same on both sides"),
        ({"protocol": 2}, r"\(protocol 2\)"),
        ({"protocol": True}, "sends no versions"),
        ({"protocol": None}, "sends no versions"),
        ({"pfedes": None}, "sends no versions"),
        ({"pfedes": "0.1." + "9" * 100}, "sends no versions"),
        ({"torch": "2.0\n"}, "sends no versions"),
        ({"nvflare": ["2.9.0"]}, "sends no versions"),
    ],
)
def test_which_versions_fit(changed: dict[str, Any], why: str | None) -> None:
    if why is None:
        assert check_versions({**OWN, **changed}, "ben") == []
        return
    with pytest.raises(WireError, match=why):
        check_versions({**OWN, **changed}, "ben")


def test_from_version_1_on_minor_versions_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "own_versions", lambda: {**OWN, "pfedes": "1.2.0"})
    assert check_versions({**OWN, "pfedes": "1.9.3"}, "ben") == []
    with pytest.raises(WireError, match="runs pfedes 2"):
        check_versions({**OWN, "pfedes": "2.0.0"}, "ben")


def test_another_torch_is_only_said() -> None:
    (note,) = check_versions({**OWN, "torch": "2.14.0"}, "ben")
    assert note == (
        "ben runs torch 2.14.0, this side 2.13.0: the bits of a simulation are not promised"
    )
    (note,) = check_versions({**OWN, "nvflare": "2.9.1"}, "ben")
    assert "not tested together" in note


@pytest.mark.parametrize("told", [{"pfedes": "0.2.0"}, {"protocol": 2}, None])
@pytest.mark.usefixtures("training_here")
def test_a_participant_refuses_a_coordinator(
    told: dict[str, Any] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it has read a word of its configuration, and it tells what it runs itself."""
    guest = ParticipantHandler(ada(tmp_path / "state"), terms().federation)
    guest.seat.state.mkdir(parents=True)
    message = enrolment_message("ada", "not = toml [")
    for key in list(message.meta):
        if told is None and key in versions.TOLD:
            del message.meta[key]
    message.meta.update(told or {})
    answer = guest.handle(message).meta
    assert (answer["kind"], answer["reason"]) == ("failure", "refused")
    assert answer["up/pfedes"] == own_versions()["pfedes"]
    assert "the coordinator " in caplog.text
    assert "install the same on both sides" in caplog.text


class TestCoordinator:
    """The coordinator's side, with participants who take part by their words alone."""

    def test_it_refuses_before_round_1(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sites = _sites(tmp_path)
        sites.told["ben"] = {"pfedes": "0.2.0"}
        with pytest.raises(
            MethodError, match=r"1 take part, but 2 must \(ben: ben runs pfedes 0.2.0"
        ):
            sites.coordinate()
        assert not sites.layout.run.exists()

    def test_the_others_begin_without_where_they_suffice(self, tmp_path: Path) -> None:
        from pfedes.deploy.coordinator.serve import Serving
        from pfedes.deploy.coordinator.status import status_of

        sites = _sites(tmp_path, **{"federation.quorum": 1})
        sites.told["ben"] = {"protocol": 2}
        run = sites.coordinate()
        assert run.manifest.clients.keys() == {"ada"}
        line = "ben does not take part: ben runs pfedes 0.1.0 (protocol 2)"
        assert line in (run.directory / "run.log").read_text()
        # It is not asked again before it has come back.
        assert [kind for site, kind in sites.asked if site == "ben"] == ["enroll"]

        said: list[str] = []
        serving = Serving(sites.layout, said.append)
        serving._tell_refusals()
        serving._tell_refusals()
        assert len(said) == 1
        assert said[0].startswith(line)
        sites.layout.config.write_text(sites.config.to_toml())
        assert "protocol 2" in (status_of(sites.layout).people[1].refused or "")

    def test_serving_says_each_round_and_whom_it_waits_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import pfedes.deploy.coordinator.announce as module

        sites = _sites(tmp_path, **{"train.rounds": 2})
        said: list[str] = []
        watch = module.Announcer(sites.layout, said.append)
        watch.look()
        sites.layout.write_awaited(1, {"ben"})
        watch.look()
        assert said == []
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 31)
        watch.look()
        watch.look()  # once, until twice the time is over
        assert said == ["round 1: waiting for ben, 31 s"]
        sites.coordinate()
        watch.look()
        watch.look()
        assert [line.partition("  ")[0] for line in said[1:]] == ["round 1/2", "round 2/2"]
        assert all("of 2 answered" in line for line in said[1:])
        later: list[str] = []
        module.Announcer(sites.layout, later.append).look()
        assert later == []  # these were said before

    def test_serving_ends_when_nobody_is_left_to_tell(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from pfedes.deploy.coordinator.serve import Serving

        sites = _sites(tmp_path, **{"train.rounds": 1, "federation.timeout": 600})
        sites.unable["ben", "notice"] = ["failed"]
        sites.coordinate()
        sites.layout.config.write_text(sites.config.to_toml())
        said: list[str] = []
        serving = Serving(sites.layout, said.append)
        serving._meet({"ada": "1", "ben": "2"})
        assert not serving._is_done()
        assert said[-1] == "all rounds are done; waiting at most 630 s to tell ben"
        serving._meet({"ada": "1"})
        assert not serving._is_done()
        assert said[-1] == "ben left before receiving the final result; waiting 30 s"
        before = len(said)
        serving._submit(MagicMock())  # nobody is there who could be told by a job
        assert not serving._is_done()
        assert len(said) == before
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 31)
        assert serving._is_done()
        assert said[-1].startswith("ben has not received the final result")

    def test_one_that_comes_back_with_another_version_is_refused(self, tmp_path: Path) -> None:
        sites = _sites(tmp_path, **{"train.rounds": 1})
        assert sites.coordinate().manifest.clients.keys() == {"ada", "ben"}
        sites.told["ben"] = {"pfedes": "0.2.0"}
        sites.config = sites.configured(**{"train.rounds": 2})
        run = sites.coordinate()
        assert [row["selected"] for row in run.rounds] == [2, 1]
        assert "ben runs pfedes 0.2.0" in (run.directory / "run.log").read_text()


def _sites(tmp_path: Path, **settings: Any) -> Any:
    pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")
    from pfedes.deploy.coordinator.layout import Layout
    from sites import Sites

    class Told(Sites):
        """Sites that tell versions of their own choice."""

        def __init__(self, layout: Layout, **settings: Any) -> None:
            super().__init__(layout, **settings)
            self.told: dict[str, dict[str, Any]] = {}

        def versions(self, site: str) -> dict[str, Any]:
            return {**OWN, **self.told.get(site, {})}

    return Told(Layout(tmp_path / "federation"), **settings)
