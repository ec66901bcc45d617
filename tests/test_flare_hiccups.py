"""What befalls single participants before and between rounds costs nobody else anything."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from pfedes import Card, Config, MethodError, Run, Scores, configure, open_run
from pfedes.fleet.base import Scored
from pfedes.fleet.flare.fleet import Answered, CalledOffError, FlareFleet, coordinate
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
