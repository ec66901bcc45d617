"""The participant's side of a federation, message by message: what it believes and says."""

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from guests import DIGITS, OWN, ada, enrolled, task, terms
from pfedes import ConfigError, Scores, StoreError, configure
from pfedes.cli._federation import show_seat
from pfedes.config import Config
from pfedes.core.measures import Measures, Metric, Tally
from pfedes.core.payload import Payload, Value, under
from pfedes.core.protocol import Task
from pfedes.deploy.participant.handler import (
    ParticipantHandler,
    _accepted,
    _measured,
    own_config,
)
from pfedes.deploy.participant.standing import ParticipantRecord
from pfedes.deploy.participant.state import ParticipantState
from pfedes.deploy.versions import enrolment_message, own_versions
from pfedes.errors import DamageError
from pfedes.fleet import make_fleet
from pfedes.fleet.messages import from_task
from pfedes.imports import imported, own_function
from pfedes.models.head import head_of
from pfedes.population.remote import RemotePopulation
from pfedes.population.simulation import Simulation
from running import contents


def test_a_whole_federation_from_the_participants_side(guest: ParticipantHandler) -> None:
    card = json.loads(enrolled(guest)["up/card"])
    assert (card["name"], card["samples"], card["classes"]) == ("ada", 320, None)
    before = guest.handle(from_task("score", task(0, 0, run="")))
    assert before.meta["kind"] == "scored"
    first = guest.handle(from_task("answer", task(1, 0)))
    assert first.meta["kind"] == "reply"
    assert sorted(first.tensors) == ["conv1.bias", "conv1.weight", "conv2.bias", "conv2.weight"]
    assert "log" not in first.meta

    # Asked again for the same, it answers the same and trains nothing.
    again = guest.handle(from_task("answer", task(1, 0)))
    assert again.digest() == first.digest()

    hello = guest.handle(Payload({}, {"kind": "hello", "client": "ada"}))
    assert (hello.floats, hello.meta["up/noted"]) == (0, 0)

    guest.handle(from_task("answer", task(2, 1)))
    record = guest.seat.record()
    assert record is not None
    assert (record.accepted, record.round, record.finished) == (1, 2, False)
    noted = guest.handle(from_task("notice", task(2, 2)))
    assert noted.meta["up/noted"] == 2
    record = guest.seat.record()
    assert record is not None
    assert (record.accepted, record.finished) == (2, True)
    assert record.before is not None
    assert record.after is not None

    kinds = [(line["kind"], line["floats"]) for line in guest.seat.sent()]
    answer = ("answer", 443)
    assert kinds == [
        *(("enroll", 0), ("score", 0), answer, answer, ("hello", 0), answer, ("notice", 0))
    ]
    personal = ParticipantState(guest.seat.directory).personal()
    assert personal.facts.scores == record.after
    assert personal.facts.trained == 2
    with pytest.raises(StoreError, match="belongs to ada, not to ben"):
        guest.seat.personal("ben")


def untrained() -> torch.nn.Module:
    """A network such as ada's."""
    torch.manual_seed(0)
    build = own_function(f"{OWN}/models.py:mlp", "model")
    network: torch.nn.Module = build(10, (3, 8, 8))
    return network


def measured_after(method: str) -> Config:
    """Terms under which the server's part belongs to the model that counts."""
    shared = {"federation.classes": DIGITS, "federation.participants": ["ada", "ben"]}
    chosen = {"method.name": method, "train.lr": 0.1, "evaluate.after_aggregation": True}
    return configure(settings={**shared, **chosen})


@pytest.mark.parametrize("method", ["fedavg", "lg_fedavg"])
@pytest.mark.usefixtures("training_here")
def test_the_model_in_use_is_the_one_that_was_measured(method: str, tmp_path: Path) -> None:
    guest = ParticipantHandler(ada(tmp_path / "state", methods=(method,)), terms().federation)
    guest.seat.state.mkdir(parents=True)
    assert enrolled(guest, measured_after(method))["kind"] == "reply"

    def ask(kind: str, round: int, base: int, held: dict[str, torch.Tensor]) -> Payload:
        return guest.handle(from_task(kind, Task("run", "ada", round, base, Payload(held))))

    def scores_of(scored: Payload) -> Scores:
        assert "measures" not in scored.meta  # class by class they stay
        return Scores.from_counts(scored.meta)

    def shared(model: torch.nn.Module) -> dict[str, torch.Tensor]:
        return (model if method == "fedavg" else head_of(model)).state_dict()

    try:
        start = shared(untrained())
        ruined = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
        learned = ask("answer", 1, 0, start).tensors
        first = scores_of(ask("score", 1, 1, learned))
        assert (
            guest.seat.personal().facts.scores.plain == first
        )  # also while the federation continues

        # The coordinator was killed before it committed that round, and does it again.
        assert ask("answer", 1, 0, start).meta["kind"] == "reply"
        ask("score", 1, 1, learned)
        ask("answer", 2, 1, learned)
        last = scores_of(ask("score", 2, 2, ruined))
        assert last.val_correct < first.val_correct
        ask("notice", 2, 2, ruined)

        record = guest.seat.record()
        assert record is not None
        assert record.scores is not None
        assert (record.accepted, record.scores.plain, record.before) == (2, last, None)
        for best, scores, held in ((False, last, ruined), (True, first, learned)):
            personal = ParticipantState(guest.seat.directory).personal(best=best)
            assert personal.facts.scores.plain == scores
            assert personal.facts.round == (1 if best else 2)
            assert all(held[name].equal(tensor) for name, tensor in shared(personal.model).items())
    finally:
        guest.stop()


@pytest.mark.usefixtures("training_here")
def test_a_model_without_the_servers_part_is_not_handed_out(tmp_path: Path) -> None:
    guest = ParticipantHandler(ada(tmp_path / "state", methods=("fedavg",)), terms().federation)
    guest.seat.state.mkdir(parents=True)
    try:
        enrolled(guest, measured_after("fedavg"))
        task = Task("run", "ada", 1, 0, Payload(untrained().state_dict()))
        assert guest.handle(from_task("answer", task)).meta["kind"] == "reply"
        for best in (False, True):
            with pytest.raises(StoreError, match="no round has been measured after aggregation"):
                guest.seat.personal(best=best)
    finally:
        guest.stop()


def test_a_participant_ignores_how_many_uploads_a_round_needs(guest: ParticipantHandler) -> None:
    """A participant is alone in its own configuration; how many must answer is the server's."""
    settings = {"train__min_uploads": 2, "aggregation__kind": "krum", "aggregation__byzantine": 1}
    assert enrolled(guest, terms(**settings))["kind"] == "reply"
    assert guest.handle(from_task("answer", task(1, 0))).meta["kind"] == "reply"
    assert guest.seat.config.aggregation.kind == "mean"


def test_a_rollback_must_be_allowed(guest: ParticipantHandler, tmp_path: Path) -> None:
    enrolled(guest)
    guest.handle(from_task("answer", task(1, 0)))
    guest.handle(from_task("answer", task(2, 1)))
    refused = guest.handle(from_task("answer", task(3, 0)))
    assert refused.meta == {"client": "ada", "kind": "failure", "reason": "refused"}
    allowed = ParticipantHandler(ada(tmp_path / "state", rollback=True), terms().federation)
    enrolled(allowed)
    assert allowed.handle(from_task("answer", task(3, 0))).meta["kind"] == "reply"
    allowed.stop()


def test_another_run_cannot_roll_a_participant_back(guest: ParticipantHandler) -> None:
    """One that begins again has another name; what was accepted in this one is not forgotten."""
    enrolled(guest)
    guest.handle(from_task("answer", task(1, 0)))
    guest.handle(from_task("answer", task(2, 1)))
    assert guest.handle(from_task("answer", task(1, 0, run="another"))).meta["kind"] == "reply"
    before = contents(guest.seat.clients.root)
    refused = guest.handle(from_task("answer", task(1, 0)))
    assert refused.meta["reason"] == "refused"
    assert contents(guest.seat.clients.root) == before
    guest.handle(from_task("score", task(2, 1)))
    record = guest.seat.record()
    assert record is not None
    assert (record.run, record.accepted) == ("run", 1)
    assert record.before is None


def test_a_damaged_version_does_not_stand_in_the_way(guest: ParticipantHandler) -> None:
    """The coordinator hears what is left, and may then go back to it."""
    enrolled(guest)
    guest.handle(from_task("answer", task(1, 0)))
    guest.handle(from_task("answer", task(2, 1)))
    guest.seat.clients.path("run", "ada", 2).write_bytes(b"torn")
    missing = guest.handle(from_task("answer", task(3, 2)))
    assert (missing.meta["reason"], missing.meta["versions"]) == ("missing base", [1])
    guest.seat.clients.path("run", "ada", 1).write_bytes(b"torn")
    assert guest.handle(from_task("answer", task(3, 1))).meta["reason"] == "missing base"
    assert guest.handle(from_task("answer", task(3, 0))).meta["kind"] == "reply"


def test_a_torn_line_in_the_account_harms_nothing(tmp_path: Path) -> None:
    """Its message never left: it is not read, and goes when the next line comes."""
    seat, path = ParticipantState(tmp_path), tmp_path / "sent.jsonl"
    message = Payload({}, {"up/run": "", "up/round": 3, "long": "x" * 100_000})
    seat.log_sent("answer", message)
    whole = path.read_bytes()
    for torn in (b'{"time": "2026', whole[:-1]):
        path.write_bytes(whole + torn)
        assert [line["kind"] for line in seat.sent()] == ["answer"]
        seat.log_sent("notice", Payload())
        assert [line["kind"] for line in seat.sent()] == ["answer", "notice"]
        assert seat.answered() == {3: 0}
    path.write_bytes(whole[:40])
    seat.log_sent("answer", message)
    assert len(seat.sent()) == 1
    for wrong in (b"{\n", b"7\n", b"{}\n", b"\xff\n"):
        path.write_bytes(whole + wrong)
        with pytest.raises(DamageError, match=r"sent\.jsonl is damaged"):
            seat.answered()


def test_nothing_is_written_for_a_coordinator_without_consent(guest: ParticipantHandler) -> None:
    more = task(2, 0, more=torch.zeros(3))
    assert enrolled(guest, terms(method__width=16))["reason"] == "refused"
    for kind in ("notice", "answer", "score"):
        assert guest.handle(from_task(kind, task(2, 0))).meta["reason"] == "refused"
    assert sorted(p.name for p in guest.seat.directory.rglob("*") if p.is_file()) == ["sent.jsonl"]

    enrolled(guest)
    agreed = guest.seat.config
    assert enrolled(guest, terms(train__rounds=9, method__width=16))["reason"] == "refused"
    assert guest.seat.config == agreed
    enrolled(guest)
    nobodys = task(2, 0, run="")
    for wrong in (more, nobodys):
        assert guest.handle(from_task("notice", wrong)).meta["reason"] == "refused"
    for changes in ({"base": "0"}, {"base": -1}, {"base": 3}, {"round": 2.0}, {"run": 7}):
        sent = from_task("answer", task(2, 0))
        odd = guest.handle(Payload(sent.tensors, {**sent.meta, **changes}))
        assert odd.meta["reason"] == "refused"
    assert guest.seat.record() is None
    assert not (guest.seat.state / "downloads").exists()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"method__name": "fedavg"}, "no consent to method 'fedavg'"),
        ({"method__width": 16}, "no consent to what 'pfedes' would send with width = 16"),
        ({"federation__channels": 1}, "the terms differ from those of your kit"),
        ({"method__extractor": "os:getcwd"}, "no consent to method.extractor = 'os:getcwd'"),
    ],
)
def test_what_a_coordinator_cannot_switch_to(
    settings: dict[str, Any], why: str, guest: ParticipantHandler, caplog: pytest.LogCaptureFixture
) -> None:
    base = {k: v for k, v in settings.items() if k != "method__name"}
    config = terms(**base)
    if "method__name" in settings:
        config = configure(
            settings={"method.name": "fedavg", "federation.classes": DIGITS,
                      "federation.participants": ["ada", "ben"]}
        )  # fmt: skip
    assert enrolled(guest, config)["kind"] == "failure"
    assert why in caplog.text
    assert guest.seat.sent()[0]["values"]["reason"] in ("refused", "failed")
    assert why not in json.dumps(guest.seat.sent())


def test_methods_from_elsewhere_are_not_even_imported(guest: ParticipantHandler) -> None:
    tree = json.loads(terms().model_dump_json())
    tree["method"]["name"] = "antigravity:Method"
    with pytest.raises(ConfigError, match="'antigravity:Method' is not built in"):
        own_config(tree, guest.participant)
    for method in ("antigravity:Method", ["pfedes"], 7, {"name": ["pfedes"]}):
        with pytest.raises(ConfigError, match=r"is not built in|is not a table"):
            own_config({**tree, "method": method}, guest.participant)


@pytest.mark.parametrize("name", ["antigravity:x.y", "antigravity:x:y", "antigravity:", ":x"])
def test_nothing_is_imported_without_consent(name: str, guest: ParticipantHandler) -> None:
    tree = json.loads(terms().model_dump_json())
    tree["method"]["extractor"] = name
    with pytest.raises(ConfigError, match=r"no consent to method\.extractor"):
        own_config(tree, guest.participant)
    with pytest.raises(ConfigError, match=r"is not of the form|cannot be imported"):
        imported("method.extractor", name)
    assert "antigravity" not in sys.modules


def test_names_of_the_coordinators_files_need_no_consent(
    guest: ParticipantHandler,
) -> None:
    tree = json.loads(terms().model_dump_json())
    tree["method"]["start_from"] = "C:runs"
    assert own_config(tree, guest.participant).method.model_dump()["start_from"] == ""


def test_messages_that_make_no_sense(guest: ParticipantHandler) -> None:
    senseless: list[dict[str, Value]] = [
        {"kind": "enroll", "client": "ben", "config": ""},
        {"kind": "enroll", "client": "ada", "config": ""},
        enrolment_message("ada", "not = toml [").meta,
        {"kind": "answer", "client": "ada"},
        {"kind": "dance", "client": "ada", "run": "r", "round": 1, "base": 0},
        {"client": "ada"},
        {},
    ]
    for meta in senseless:
        answer = guest.handle(Payload({}, meta))
        told = under("up/", own_versions()) if meta.get("kind") == "enroll" else {}
        assert answer.meta == {"client": "ada", "kind": "failure", "reason": "refused", **told}
    enrolled(guest)
    assert guest.handle(from_task("dance", task(1, 0))).meta["reason"] == "refused"
    extra = guest.handle(from_task("answer", task(1, 0, more=torch.zeros(3))))
    assert extra.meta["reason"] == "refused"
    assert guest.seat.clients.versions("run", "ada") == []


VANISHING = """
import runpy
from pathlib import Path


def load():
    if not Path(__file__).with_name("mounted").exists():
        raise FileNotFoundError("the ward's disk is not there")
    return runpy.run_path("{own}/data.py")["small"]()
"""


def test_vanished_data_and_a_full_disk_cost_a_round_and_no_more(tmp_path: Path) -> None:
    """Three training processes, one after another, take the time."""
    (tmp_path / "mine.py").write_text(VANISHING.replace("{own}", str(OWN)))
    mounted = tmp_path / "mounted"
    mounted.touch()
    person = ada(tmp_path / "state").model_copy(update={"data": f"{tmp_path}/mine.py:load"})
    guest = ParticipantHandler(person, terms().federation)
    guest.seat.state.mkdir(parents=True)
    failed = {"client": "ada", "kind": "failure", "reason": "failed"}
    try:
        enrolled(guest)
        first = guest.handle(from_task("answer", task(1, 0)))
        assert first.meta["kind"] == "reply"

        mounted.unlink()
        os.kill(_worker_of(guest), signal.SIGKILL)  # the next one has to load the data again
        assert guest.handle(from_task("answer", task(2, 1))).meta == failed
        mounted.touch()
        assert guest.handle(from_task("answer", task(2, 1))).meta["kind"] == "reply"

        unlimited = resource.RLIM_INFINITY
        resource.prlimit(_worker_of(guest), resource.RLIMIT_FSIZE, (1000, unlimited))
        assert guest.handle(from_task("answer", task(3, 2))).meta == failed
        assert guest.seat.clients.versions("run", "ada")[-1] == 2
        resource.prlimit(_worker_of(guest), resource.RLIMIT_FSIZE, (unlimited, unlimited))
        assert guest.handle(from_task("answer", task(3, 2))).meta["kind"] == "reply"
    finally:
        guest.stop()


def _worker_of(guest: ParticipantHandler) -> int:
    assert guest._worker is not None
    assert guest._worker.pid is not None
    return guest._worker.pid


def test_a_new_training_process_does_not_train_on_other_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "mine.py"
    (tmp_path / "mounted").touch()
    own.write_text(VANISHING.replace("{own}", str(OWN)))
    person = ada(tmp_path / "state").model_copy(update={"data": f"{own}:load"})
    guest = ParticipantHandler(person, terms().federation)
    guest.seat.state.mkdir(parents=True)
    try:
        told = enrolled(guest)
        assert told["kind"] == "reply"
        assert "up/data" not in told  # the digest of its data stays here
        own.write_text(own.read_text().replace('["small"]()', '["large"]()'))
        os.kill(_worker_of(guest), signal.SIGKILL)
        answer = guest.handle(from_task("answer", task(1, 0)))
        assert (answer.meta["kind"], answer.meta["reason"]) == ("failure", "failed")
        assert "its worker process finds other data" in caplog.text
    finally:
        guest.stop()


def test_what_a_coordinator_sets_stays_off_the_participants_machine(
    guest: ParticipantHandler,
) -> None:
    tree = json.loads(terms().model_dump_json())
    tree["runtime"] |= {"threads": 64, "device": "cuda"}
    tree["method"]["start_from"] = "/etc/passwd"
    config = own_config(tree, guest.participant)
    assert (config.runtime.threads, config.runtime.device) == (1, "auto")
    assert config.method.model_dump()["start_from"] == ""
    assert config.participants == (guest.participant,)


def test_a_coordinator_has_no_models_or_data_of_participants() -> None:
    simulation = Simulation(terms())
    population = simulation.population
    assert isinstance(population, RemotePopulation)
    assert population.names == ["ada", "ben"]
    for ask in (population.client, population.untrained, population.labels):
        with pytest.raises(StoreError, match="ada's model and data are on its own machine"):
            ask("ada")
    with pytest.raises(ConfigError, match="with 'pfedes serve'"):
        make_fleet(simulation, None)  # type: ignore[arg-type]  # it is refused before it is looked at
    with pytest.raises(ConfigError, match="names a participant twice"):
        Simulation(terms(federation__participants=["ada", "ada"]))


def of(*counts: tuple[int, int, int]) -> Scores:
    """Validation and test alike."""
    tally = Tally(counts)
    both = (tally.correct, tally.samples)
    return Scores(*both, *both, Measures(tally, tally))


MAJORITY = of((0, 0, 9), (1, 0, 1))  # 90 % right, 50 % balanced
FAIR = of((0, 0, 6), (0, 1, 3), (1, 1, 1))  # 70 % right, 83 % balanced


@pytest.mark.parametrize(("metric", "best"), [("accuracy", 1), ("balanced_accuracy", 2)])
def test_the_best_is_chosen_by_the_participants_own_metric(metric: Metric, best: int) -> None:
    record = ParticipantRecord().judged_by(metric)
    for version, scores in ((1, MAJORITY), (2, FAIR)):
        record = _accepted(record, version, scores)
        record = _measured(record, Task("run", "ada", version, version, Payload()), scores)
    assert record.best == best
    assert record.best_measured is not None
    assert record.best_measured.version == best
    other = record.judged_by("macro_f1")  # what was best by another metric is not
    assert (other.best, other.best_measured) == (0, None)


@pytest.mark.parametrize(
    ("own", "of_federation", "used"),
    [("auc", "accuracy", "auc"), ("", "macro_f1", "macro_f1"), ("", "accuracy", "accuracy")],
)
@pytest.mark.usefixtures("training_here")
def test_a_participants_metric_goes_before_the_federations(
    own: Metric, of_federation: str, used: str, tmp_path: Path
) -> None:
    config = terms(evaluate__metric=of_federation)
    guest = ParticipantHandler(ada(tmp_path / "state", metric=own), config.federation)
    guest.seat.state.mkdir(parents=True)
    try:
        assert enrolled(guest, config)["kind"] == "reply"
        assert guest._metric == used
    finally:
        guest.stop()


def test_a_model_that_trained_alone_is_called_that_too(
    guest: ParticipantHandler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    enrolled(guest)
    guest.seat.write_record(ParticipantRecord(run="run", accepted=1, after=FAIR))
    config = guest.seat.config
    (person,) = config.participants
    wished = person.model_copy(update={"compare_alone": True})
    guest.seat.write_config(config.model_copy(update={"participants": (wished,)}))
    monkeypatch.setattr("pfedes.cli._federation.trained_alone", lambda seat: MAJORITY)
    show_seat(guest.seat)
    said = " ".join(capsys.readouterr().out.split())
    assert "90.00 % after training alone for as many rounds; that model predicts one class" in said


def test_join_says_in_the_end_that_a_model_names_one_class(
    guest: ParticipantHandler, capsys: pytest.CaptureFixture[str]
) -> None:
    enrolled(guest)
    guest.seat.write_record(ParticipantRecord(run="run", accepted=1, after=MAJORITY))
    show_seat(guest.seat)
    said = capsys.readouterr().out
    assert "the model predicts one class only, 'zero'" in said
    assert "balanced accuracy 50.00 %" in said
    assert "90.00 % right by always" in said
