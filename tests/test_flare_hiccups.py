"""What befalls single participants before and between rounds costs nobody else anything."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from pfedes import Card, Config, ConfigError, MethodError, Run, Scores, configure, open_run
from pfedes.fleet.base import Scored
from pfedes.fleet.flare.fleet import Answered, CalledOffError, FlareFleet, coordinate, untold
from pfedes.fleet.flare.layout import Layout, Presence
from pfedes.fleet.frames import from_answer
from pfedes.payload import Payload


class Sites:
    """Participants who take part by their words alone: they never manage a round."""

    def __init__(self, layout: Layout, **settings: Any) -> None:
        layout.directory.mkdir()
        layout.write_presence(Presence({}, {}))
        self.layout = layout
        self.config = self.configured(**settings)
        self.shapes = {"ada": (3, 8, 8), "ben": (3, 8, 8)}
        self.unable: dict[tuple[str, str], list[str]] = {}  # what is said instead, by site and kind
        self.asked: list[tuple[str, str]] = []

    @staticmethod
    def configured(**settings: Any) -> Config:
        always = {
            "federation.participants": ["ada", "ben"],
            "federation.classes": ["a", "b"],
            "train.rounds": 3,
            "runtime.report": False,
        }
        return configure(settings={**always, **settings})

    def coordinate(self) -> Run:
        fleet = FlareFleet(self.ask, lambda site: None, self.config, sorted(self.shapes))
        coordinate(self.layout, self.config, fleet)
        return open_run(self.layout.run)

    def ask(self, messages: Mapping[str, Payload], timeout: int) -> Iterator[Answered]:
        for site, message in messages.items():
            kind = str(message.meta["kind"])
            self.asked.append((site, kind))
            yield site, self.answer(site, kind)

    def answer(self, site: str, kind: str) -> Payload | str:
        about = {"client": site, "kind": "reply"}
        if instead := self.unable.get((site, kind)):
            said = instead.pop(0)
            if said.startswith("no answer"):
                return said
            return Payload({}, {**about, "kind": "failure", "reason": said})
        if kind == "enroll":
            card = Card(site, 5, self.shapes[site])
            return Payload({}, {**about, "up/card": json.dumps(asdict(card))})
        if kind == "score":
            return from_answer(Scored(site, Scores(0, 0, 1, 2)), "")
        return Payload({}, about)


def test_who_falls_silent_before_the_first_round_does_not_end_the_command(tmp_path: Path) -> None:
    sites = Sites(Layout(tmp_path / "all"))
    sites.unable["ben", "score"] = ["no answer: TIMEOUT"]
    with pytest.raises(CalledOffError, match="ben cannot be evaluated: no answer"):
        sites.coordinate()
    assert sites.coordinate().manifest.clients.keys() == {"ada", "ben"}
    sites = Sites(Layout(tmp_path / "failed"))
    sites.unable["ben", "score"] = ["failed"]
    with pytest.raises(MethodError, match="ben cannot be evaluated: failed"):
        sites.coordinate()

    # Where a quorum suffices, it begins without.
    sites = Sites(Layout(tmp_path / "quorum"), **{"federation.quorum": 1})
    sites.unable["ben", "score"] = ["no answer: TIMEOUT"]
    run = sites.coordinate()
    assert run.store.manifest(run.store.rounds()[-1]).clients.keys() == {"ada"}


def test_rounds_that_could_only_fail_are_waited_for(tmp_path: Path) -> None:
    sites = Sites(Layout(tmp_path / "federation"), **{"train.min_uploads": 2})
    sites.unable["ben", "answer"] = ["no answer: TIMEOUT"]
    with pytest.raises(CalledOffError, match="1 can be reached, a round needs 2"):
        sites.coordinate()
    run = open_run(sites.layout.run)
    assert [row["status"] for row in run.rounds] == ["failed"]
    assert {standing.version for standing in run.manifest.clients.values()} == {0}
    sites.unable["ben", "enroll"] = ["no answer: TIMEOUT"]
    with pytest.raises(CalledOffError, match="1 of 2 take part"):
        sites.coordinate()
    assert [row["round"] for row in sites.coordinate().rounds] == [1, 2, 3]


def test_the_roster_decides_whether_a_round_can_succeed(tmp_path: Path) -> None:
    """Not the names in the configuration: who never came is asked for nothing."""
    settings = {"federation.quorum": 1, "train.min_uploads": 2}
    sites = Sites(Layout(tmp_path / "federation"), **settings)
    sites.unable["ben", "enroll"] = ["failed"]
    with pytest.raises(ConfigError, match="min_uploads = 2: a round asks 1 of 1 clients"):
        sites.coordinate()
    assert not sites.layout.run.exists()


def test_the_end_is_told_to_fewer_than_a_quorum(tmp_path: Path) -> None:
    settings = {"federation.quorum": 2, "train.min_uploads": 2, "train.rounds": 1}
    sites = Sites(Layout(tmp_path / "federation"), **settings)
    sites.unable["ben", "notice"] = ["no answer: TIMEOUT"]
    assert untold(sites.layout, sites.coordinate()) == {"ben"}
    del sites.shapes["ada"]
    assert untold(sites.layout, sites.coordinate()) == set()


def test_who_could_not_take_part_is_greeted_again(tmp_path: Path) -> None:
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
