"""Measures class by class leave a participant only if the terms ask for them and it shares them."""

from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.fl_context import FLContext

from commands import command
from guests import ada, enrolled, task, terms
from pfedes import ConfigError
from pfedes.config import Config
from pfedes.core.measures import Measures
from pfedes.core.payload import Payload
from pfedes.core.protocol import BY_DEFAULT, Reply, Scored
from pfedes.deploy.coordinator.fleet import _said
from pfedes.deploy.filter_rules import allowed_by
from pfedes.deploy.messages import to_payload, to_shareable
from pfedes.deploy.participant.filter import OnlyAgreed
from pfedes.deploy.participant.handler import ParticipantHandler
from pfedes.fleet.messages import from_task
from pfedes.population.simulation import Simulation

ALL = (*BY_DEFAULT, "measures")


def guest_of(place: Path, config: Config, **person: Any) -> ParticipantHandler:
    guest = ParticipantHandler(ada(place, **person), config.federation, config.privacy)
    guest.seat.make()
    return guest


@pytest.mark.usefixtures("training_here")
def test_measures_leave_if_terms_and_participant_say_so(tmp_path: Path) -> None:
    config = terms(federation__measures=True)
    guest = guest_of(tmp_path, config, share=ALL)
    try:
        assert enrolled(guest, config)["kind"] == "reply"
        answered = guest.handle(from_task("answer", task(1, 0)))
        scored = guest.handle(from_task("score", task(1, 1)))
    finally:
        guest.stop()
    stored = guest.seat.clients.load("run", "ada", 1)
    door = OnlyAgreed(**allowed_by(guest.participant, config))
    for left in (answered, scored):
        message = to_payload(door.process(to_shareable(left), FLContext()))
        assert Measures.from_text(str(message.meta["measures"])) == stored.measures
        found = _said("ada", message, 10)
        assert isinstance(found, Reply | Scored)
        assert (scores := found.scores) is not None
        assert scores.measures == stored.measures
        assert scores.by("balanced_accuracy") is not None
    # A coordinator believes them no more than anything else.
    for classes, reason in ((0, "measures that were not requested"), (1, "measures of class")):
        assert reason in getattr(_said("ada", answered, classes), "reason", "")
    lied = Payload({}, scored.meta | {"test_correct": 0, "test_total": 1})
    assert "differ from the sum over their classes" in getattr(_said("ada", lied, 10), "reason", "")


@pytest.mark.usefixtures("training_here")
def test_measures_stay_if_the_terms_do_not_ask(tmp_path: Path) -> None:
    guest = guest_of(tmp_path, terms(), share=ALL)
    try:
        assert enrolled(guest)["kind"] == "reply"
        assert "measures" not in guest.handle(from_task("answer", task(1, 0))).meta
    finally:
        guest.stop()


@pytest.mark.usefixtures("training_here")
def test_a_participant_that_does_not_share_measures_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = terms(federation__measures=True)
    guest = guest_of(tmp_path, config)
    try:
        said = enrolled(guest, config)
    finally:
        guest.stop()
    assert (said["kind"], said["reason"]) == ("failure", "refused")
    assert "no consent to 'measures'" in caplog.text
    assert "federation.measures = true demands it" in caplog.text


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_the_sites_filter_lets_shared_measures_pass(
    asked: bool, shared: bool, tmp_path: Path
) -> None:
    person = ada(tmp_path, share=ALL if shared else BY_DEFAULT)
    values = allowed_by(person, terms(federation__measures=asked))["values"]
    assert ("measures" in values) is (asked and shared)


def test_shared_measures_let_a_metric_choose_the_best_round() -> None:
    wished = {"evaluate__metric": "balanced_accuracy"}
    assert terms(**wished).metric == "accuracy"
    assert terms(**wished, federation__measures=True).metric == "balanced_accuracy"


def test_scores_that_stay_cannot_be_told_class_by_class() -> None:
    config = terms(federation__measures=True, privacy__metadata="none")
    with pytest.raises(ConfigError, match=r"federation\.measures must be false with privacy\."):
        Simulation(config)


def test_check_says_what_would_leave_or_is_refused(tmp_path: Path) -> None:
    person = ada(tmp_path / "state")
    text = f'name = "ada"\nmodel = "{person.model}"\ndata = "{person.data}"\n'
    (tmp_path / "terms.toml").write_text(terms(federation__measures=True).to_toml())
    arguments = ("check", "ada.toml", "--federation", str(tmp_path / "terms.toml"))
    Path("ada.toml").write_text(text)
    done = command(*arguments)
    assert done.returncode == 2
    assert "no consent to 'measures'" in done.stdout
    Path("ada.toml").write_text(f"{text}share = {list(ALL)}\n")
    done = command(*arguments)
    assert done.returncode == 0
    assert "confusion matrices" in done.stdout
