"""Participants that only speak: a coordinator meets them without a network."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pfedes import Card, Config, Run, Scores, configure, open_run
from pfedes.core.payload import Payload, Value, under
from pfedes.core.protocol import Scored
from pfedes.deploy.coordinator.fleet import (
    Answered,
    FlareFleet,
    NoMessage,
    coordinate,
)
from pfedes.deploy.coordinator.layout import Layout, Presence
from pfedes.deploy.versions import own_versions
from pfedes.fleet.messages import from_answer

SILENCE = NoMessage("no answer: TIMEOUT", silent=True, struck=True)


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
        sites = sorted(self.shapes)
        self.fleet = FlareFleet(self.ask, self.beckon, self.config, sites, self.layout)
        coordinate(self.layout, self.config, self.fleet)
        return open_run(self.layout.run)

    def beckon(self, site: str) -> None:
        """Nobody answers a hello, unless a test says so."""

    def ask(self, messages: Mapping[str, Payload], timeout: int) -> Iterator[Answered]:
        for site, message in messages.items():
            kind = str(message.meta["kind"])
            self.asked.append((site, kind))
            yield site, self.answer(site, kind)

    def versions(self, site: str) -> dict[str, Any]:
        return own_versions()

    def answer(self, site: str, kind: str) -> Payload | NoMessage:
        about: dict[str, Value] = {"client": site, "kind": "reply"}
        if instead := self.unable.get((site, kind)):
            said = instead.pop(0)
            if said == SILENCE.why:
                return SILENCE
            told = under("up/", self.versions(site)) if kind == "enroll" else {}
            return Payload({}, {**about, **told, "kind": "failure", "reason": said})
        if kind == "enroll":
            card = Card(site, 5, self.shapes[site])
            told = under("up/", {"card": json.dumps(asdict(card)), **self.versions(site)})
            return Payload({}, {**about, **told})
        if kind == "score":
            return from_answer(Scored(site, Scores(0, 0, 1, 2)), "")
        return Payload({}, about)
