"""What goes with an upload: what a federation asks for, and what a participant lets leave."""

import json
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from guests import Remote, ada, enrolled, task, terms
from pfedes import Federation, Run, configure
from pfedes.config import Config
from pfedes.core.protocol import Failure, Reply, Scored, Task
from pfedes.deploy.coordinator.terms import with_norm
from pfedes.deploy.filter_rules import allowed_by
from pfedes.deploy.participant.handler import ParticipantHandler, own_config
from pfedes.errors import ConfigError, DamageError, MethodError, StoreError
from pfedes.fleet.client_host import host_of
from pfedes.fleet.messages import from_task
from pfedes.fleet.serial import with_threads
from pfedes.population.simulation import Simulation
from pfedes.report.comparison import render_comparison
from pfedes.results.closing import as_html, headline
from pfedes.store.client_store import ClientStore
from pfedes.watch.view import view_of
from running import small

COUNTS = {"val_correct", "val_total", "test_correct", "test_total"}
LEFT = {
    "all": {"run", "round", "base", "samples", "loss", "state", "zeros", *COUNTS},
    "scores": {"run", "round", "base", *COUNTS},
    "none": {"run", "round", "base"},
}


def alone(metadata: str, **settings: Any) -> Config:
    """One round with the least that can be said of it."""
    asked = {"train__rounds": 1, "runtime__report": False, "runtime__fleet": "serial", **settings}
    return with_norm(terms(privacy__metadata=metadata, **asked))


class Asked(Remote):
    """Counts who was asked for scores."""

    scored = 0

    def evaluate(self, tasks: Sequence[Task]) -> Iterator[Scored | Failure]:
        self.scored += len(tasks)
        return super().evaluate(tasks)


def trained(config: Config, place: Path) -> tuple[Run, Asked]:
    fleet = Asked(config, place)
    return Federation(config, out=place / "run", fleet=lambda *_: fleet).run(), fleet


def guest_of(place: Path, config: Config, **person: Any) -> ParticipantHandler:
    guest = ParticipantHandler(ada(place, **person), config.federation, config.privacy)
    guest.seat.make()
    return guest


@pytest.mark.parametrize("metadata", ["scores", "none"])
def test_metadata_that_stays_is_unknown_and_training_is_unchanged(
    metadata: str, tmp_path: Path
) -> None:
    run, fleet = trained(alone(metadata, runtime__report=metadata == "none"), tmp_path)
    row = run.clients[0]
    assert row["status"] == "ok"
    assert (row["n"], row["loss"], row["flops"], "zeros" in row) == (None, None, None, False)
    assert row["metadata_up"] == len(LEFT[metadata])
    assert [card.samples for card in run.store.cards(run.manifest)] == [1, 1]
    told = metadata == "scores"
    assert (run.manifest.best_round is not None) is told
    assert (run.summary["mean_accuracy"] is not None) is told
    assert len(run.summary["accuracies"]) == (2 if told else 0)
    assert (fleet.scored > 0) is told
    assert ("withheld" in headline(run)) is not told
    if told:
        return
    assert "accuracy" in as_html(run)
    view_of(run)
    assert (
        "Participants keep their scores to themselves"
        in (run.directory / "report.html").read_text()
    )
    with pytest.raises(StoreError, match="its participants keep their scores"):
        render_comparison([run, run], run.directory / "comparison.html")
    # A simulation knows all, and gives the same bits: clients have equal weight in both.
    config = alone(metadata)
    together = {
        "participants": tuple(guest.participant for guest in fleet.guests.values()),
        "federation": config.federation.model_copy(update={"participants": ()}),
    }
    here = config.model_copy(update=together)
    simulated = Federation(here, out=tmp_path / "simulated").run()
    assert simulated.manifest.server_digest == run.manifest.server_digest
    assert simulated.summary["mean_accuracy"] is not None


def test_clients_have_equal_weight_unless_all_metadata_leave(tmp_path: Path) -> None:
    runs = [
        Federation(small(train__rounds=1, privacy__metadata=told), out=tmp_path / told).run()
        for told in ("all", "scores", "none")
    ]
    digests = [run.manifest.server_digest for run in runs]
    assert digests[1] == digests[2] != digests[0]


@pytest.mark.parametrize("metadata", LEFT)
def test_the_site_lets_pass_what_was_asked_for(metadata: str, tmp_path: Path) -> None:
    rules = allowed_by(ada(tmp_path), alone(metadata))
    values = {value.removeprefix("up/") for value in rules["values"]}
    assert values >= LEFT[metadata]
    assert not values & (LEFT["all"] - LEFT[metadata])


def test_consent_to_a_method_that_privacy_excludes_keeps_nobody_out(tmp_path: Path) -> None:
    person, config = ada(tmp_path, methods=("pfedes", "fd")), alone("none")
    assert allowed_by(person, config) == allowed_by(ada(tmp_path), config)
    others = config.model_copy(update={"method": configure(method="fd").method})
    with pytest.raises(MethodError, match="fd cannot be protected"):
        allowed_by(person, others)


@pytest.mark.parametrize(
    ("metadata", "share", "word"),
    [
        ("all", ("samples", "loss", "scores"), "zeros"),
        ("all", ("loss", "scores", "zeros"), "samples"),
        ("all", ("samples", "scores", "zeros"), "loss"),
        ("scores", (), "scores"),
        ("scores", ("scores",), ""),
        ("none", (), ""),
    ],
)
def test_nothing_leaves_that_is_not_shared(
    metadata: str, share: tuple[str, ...], word: str, tmp_path: Path
) -> None:
    """What is demanded and not shared is refused, and not left out."""
    config = alone(metadata)
    person = ada(tmp_path, share=share)
    alone_here = config.model_copy(update={"participants": (person,)})
    simulation = Simulation(alone_here)
    card = simulation.population.card("ada", simulation.method.needs)
    consent = simulation.population.consent("ada")
    assert consent is not None
    reasons = list(consent.refusals(simulation.method, card, simulation.context(1)))
    assert [f"no consent to {word!r}" in reason for reason in reasons] == [True] * bool(word)


def test_what_is_not_shared_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    given = alone("all").model_dump(mode="json")
    host = host_of(
        Simulation(own_config(given, ada(tmp_path, share=("scores",)))), ClientStore(tmp_path)
    )
    for answer in (host.introduce(task(0, 0)), host.answer(task(1, 0)), host.score(task(0, 0))):
        assert isinstance(answer, Failure)
        assert answer.code == "refused"
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"privacy__mode": "local", "privacy__noise": 1.0}, ConfigError, "epsilon would not cover"),
        ({"privacy__secure_sum": True}, ConfigError, "must be 'scores' or 'none'"),
        ({"privacy__metadata": "none", "train__patience": 2}, ConfigError, "patience must be 0"),
        ({"privacy__metadata": "none", "method__name": "fd"}, MethodError, "less metadata"),
    ],
)
def test_metadata_that_would_tell_what_is_hidden_is_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    people = ["ada", "ben", "cleo"]
    with pytest.raises(error, match=message):
        Simulation(terms(federation__participants=people, **settings))


def test_a_participant_sends_no_metadata_and_trains_with_its_own_seed(tmp_path: Path) -> None:
    """The participant's own process takes the time."""
    config = alone("none")
    guest = guest_of(tmp_path, config, own_seed=True)
    try:
        card = json.loads(enrolled(guest, config)["up/card"])
        assert card["samples"] == 1
        answer = guest.handle(from_task("answer", task(1, 0)))
        assert {key[3:] for key in answer.meta if key.startswith("up/")} == LEFT["none"]
        asked = guest.handle(from_task("score", task(1, 1))).meta
        assert (asked["kind"], COUNTS.isdisjoint(asked)) == ("failure", True)
    finally:
        guest.stop()
    left = answer.tensors
    place = tmp_path / "state" / "own.seed"
    seed = int(place.read_text())
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert str(seed) not in (tmp_path / "sent.jsonl").read_text()

    def upload(seed: int) -> dict[str, torch.Tensor]:
        given = config.model_copy(update={"seed": seed}).model_dump(mode="json")
        host = host_of(
            Simulation(own_config(given, ada(tmp_path))), ClientStore(tmp_path / f"{seed}")
        )
        with with_threads(1):
            answer = host.answer(task(1, 0))
        assert isinstance(answer, Reply), answer
        return answer.payload.tensors

    assert all(torch.equal(left[name], tensor) for name, tensor in upload(seed).items())
    assert not all(torch.equal(left[name], tensor) for name, tensor in upload(0).items())
    # After a restart it is the same, and test samples do not become training samples.
    assert guest_of(tmp_path, config, own_seed=True).seat.own_seed() == seed
    plain = guest_of(tmp_path, config)
    assert enrolled(plain, config)["reason"] == "refused"
    place.unlink()
    assert enrolled(guest_of(tmp_path, config, own_seed=True), config)["reason"] == "refused"
    place.write_text("x")
    with pytest.raises(DamageError, match=r"own\.seed is damaged"):
        plain.seat.own_seed()
