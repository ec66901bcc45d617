"""Every method in a federation, whose network is a function: the rest of it is real."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from nvflare.fuel.utils import fobs

from flaring import assert_same
from pfedes import Federation, Participant, configure
from pfedes.core.payload import Payload
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.messages import to_payload, to_shareable
from pfedes.deploy.participant.handler import ParticipantHandler
from pfedes.methods import METHODS
from sites import Sites
from tiny import CLASSES

QUICKLY = ("fedtgp",)  # its server trains, and uploads come with class ids


class Joined(Sites):
    """Participants who train, behind all that a message goes through but the socket."""

    def __init__(self, layout: Layout, people: list[Participant], **settings: Any) -> None:
        super().__init__(layout, **settings)
        self.handlers = {}
        for person in people:
            handler = ParticipantHandler(person, self.config.federation)
            handler.seat.state.mkdir(parents=True)
            self.handlers[person.name] = handler

    def ask(self, messages: Mapping[str, Payload], timeout: int) -> Iterator[tuple[str, Payload]]:
        for site, message in messages.items():
            yield site, sent(self.handlers[site].handle(sent(message)))


def sent(message: Payload) -> Payload:
    return to_payload(fobs.loads(fobs.dumps(to_shareable(message))))


@pytest.mark.parametrize(
    "method",
    [
        method if method in QUICKLY else pytest.param(method, marks=pytest.mark.repeat)
        for method in METHODS
    ],
)
def test_a_federation_gives_the_bits_of_its_simulation(method: str, tmp_path: Path) -> None:
    """Two participants train in processes of their own, which import torch."""
    people = [
        Participant(
            name=name,
            model="cnn5",
            data=f"tiny:{name}_large",
            state=str(tmp_path / name),
            methods=(method,),
        )
        for name in ("ada", "ben")
    ]
    settings = {
        "method.name": method,
        "federation.classes": list(CLASSES),
        "train.rounds": 2,
        "models.pool": ["cnn5"],
        "train.epochs": 1,
        "train.batch_size": 16,  # participants refuse an upload of a single step
        "runtime.report": False,
    }
    joined = Joined(Layout(tmp_path / "federation"), people, **settings)
    try:
        run = joined.coordinate()
    finally:
        for handler in joined.handlers.values():
            handler.stop()
    config = configure(participants=people, settings=settings)
    assert_same(run, Federation(config, out=tmp_path / "simulated").run())
