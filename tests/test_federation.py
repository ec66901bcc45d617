"""The round loop: selection, admission, evaluation, commits, resuming."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pfedes import Card, Config, Federation, Listener, Payload, PFedES, Scores, StoreError, open_run
from pfedes.core.protocol import Failure, Reply, Scored, Task
from pfedes.federation.admission import Verdict
from pfedes.federation.ledger import Ledger
from pfedes.federation.loop import uniform
from pfedes.fleet.serial import SerialFleet
from pfedes.population.simulation import Simulation
from pfedes.results.summary import Row, until
from pfedes.store.run_store import RunStore
from running import result, rows, small


def run(config: Config, out: Path, **options: Any) -> Any:
    return Federation(config, out=out, **options).run()


def tampered(monkeypatch: pytest.MonkeyPatch, change: Callable[[Reply], Reply | Failure]) -> None:
    """Puts something between the clients and the server."""
    honest = SerialFleet.round

    def round(self: SerialFleet, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
        for answer in honest(self, tasks):
            yield change(answer) if isinstance(answer, Reply) else answer

    monkeypatch.setattr(SerialFleet, "round", round)


def test_a_run_leaves_what_was_promised(tmp_path: Path) -> None:
    finished = run(small(train__participation=0.5, runtime__report=True), tmp_path / "run")
    directory = tmp_path / "run"
    assert {path.name for path in directory.iterdir()} == {
        *("config.toml", "environment.json", "run.log", "rounds.jsonl", "clients.jsonl"),
        *("state", "summary.json", "report.html"),
    }
    summary = json.loads((directory / "summary.json").read_text())
    assert list(summary) == [
        *("method", "dataset", "clients", "rounds", "seed"),
        *("mean_accuracy", "std_accuracy", "accuracies"),
        *("best_round", "best_accuracy", "last10_accuracy", "initial_accuracy"),
        *("floats_down", "floats_up", "bytes_down", "bytes_up", "metadata_down", "metadata_up"),
        *("floats_evaluation", "flops", "seconds", "targets", "rejected_uploads"),
        *("failed_clients", "balanced_accuracy", "macro_f1", "auc", "majority_baseline"),
        *("one_class", "best_selected_round", "best_selected_accuracy"),
    ]
    rounds, clients = rows(directory / "rounds.jsonl"), rows(directory / "clients.jsonl")
    assert [row["round"] for row in rounds] == [1, 2]
    assert [row["round"] for row in clients] == [1, 1, 2, 2]
    for row in clients:
        assert (row["status"], row["floats_down"], row["floats_up"]) == ("ok", 443, 443)
        assert (row["bytes_down"], row["bytes_up"]) == (1772, 1772)
        assert (row["metadata_down"], row["metadata_up"]) == (5, 13)
        assert 0 <= row["zeros"] <= 1
    for row in rounds:
        assert row["floats_down"] == row["floats_up"] == 2 * 443
        assert (row["selected"], row["answered"], row["rejected"], row["failed"]) == (2, 2, 0, 0)
        mine = [own for own in clients if own["round"] == row["round"]]
        assert row["flops"] == sum(own["flops"] for own in mine)
        assert row["accuracy_selected"] == pytest.approx(np.mean([own["accuracy"] for own in mine]))
    selected = [row["accuracy_selected"] for row in rounds]
    assert summary["best_selected_accuracy"] == pytest.approx(max(selected))
    assert selected[summary["best_selected_round"] - 1] == max(selected)
    assert summary["floats_up"] == 4 * 443
    assert summary["mean_accuracy"] == pytest.approx(np.mean(summary["accuracies"]))
    assert summary["std_accuracy"] == pytest.approx(np.std(summary["accuracies"]))
    assert summary["mean_accuracy"] == rounds[-1]["accuracy"]
    best = max(rounds, key=lambda row: (row["val_accuracy"], -row["round"]))
    assert (summary["best_round"], summary["best_accuracy"]) == (best["round"], best["accuracy"])
    assert finished.summary == summary
    environment = json.loads((directory / "environment.json").read_text())
    assert environment["torch_build"] == torch.__version__


def test_the_headline_is_the_mean_over_all_clients(tmp_path: Path) -> None:
    config = small(train__participation=0.25, train__rounds=1)
    finished = run(config, tmp_path / "run")
    simulation = Simulation(config)
    scores = [
        simulation.population.client(name).score(finished.model(name))
        for name in simulation.population.names
    ]
    assert finished.summary["accuracies"] == [score.accuracy for score in scores]


def test_config_toml_repeats_the_run(tmp_path: Path) -> None:
    from pfedes import configure

    first = run(small(train__participation=0.5, seed=7), tmp_path / "first")
    again = run(configure(tmp_path / "first" / "config.toml"), tmp_path / "again")
    assert result(first) == result(again)


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    first, other = (run(small(seed=seed), tmp_path / str(seed)) for seed in (0, 1))
    assert result(first)["standings"] != result(other)["standings"]


def test_a_run_does_not_disturb_the_callers_randomness(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(small(train__rounds=1, runtime__threads=1), tmp_path / "run")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert torch.equal(torch.rand(3), expected)


class Stop(Listener):
    """Interrupts after so many clients."""

    def __init__(self, after: int) -> None:
        self.left = after

    def client_done(self, verdict: object) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("method", "after"), [("pfedes", 1), ("pfedes", 4), ("pfedes", 11), ("fedavg", 5)]
)
def test_interrupted_and_resumed_equals_uninterrupted(
    method: str, after: int, tmp_path: Path
) -> None:
    config = small(method, models__pool=["cnn5"], train__rounds=3)
    straight = run(config, tmp_path / "straight")
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "broken", listener=Stop(after))
    assert open_run(tmp_path / "broken").manifest.round == (after - 1) // 4
    resumed = Federation.resume(tmp_path / "broken").run()
    assert result(resumed) == result(straight)


def test_resuming_never_trains_an_answered_task_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []
    honest = PFedES.client_round

    def counted(self: PFedES, client: Any, *rest: Any) -> Any:
        trained.append(client.name)
        return honest(self, client, *rest)

    monkeypatch.setattr(PFedES, "client_round", counted)
    with pytest.raises(KeyboardInterrupt):
        run(small(train__rounds=1), tmp_path / "run", listener=Stop(3))
    Federation.resume(tmp_path / "run").run()
    assert sorted(trained) == [f"client-000{number}" for number in range(4)]


def test_extending_a_finished_run(tmp_path: Path) -> None:
    straight = run(small(train__rounds=3), tmp_path / "straight")
    run(small(train__rounds=1), tmp_path / "run")
    extended = Federation.resume(tmp_path / "run", rounds=3).run()
    assert result(extended) == result(straight)
    assert open_run(tmp_path / "run").config.train.rounds == 3
    with pytest.raises(StoreError, match="has done 3 rounds"):
        Federation.resume(tmp_path / "run", rounds=2)


def test_going_back_and_on_again(tmp_path: Path) -> None:
    first = run(small(train__rounds=3), tmp_path / "run")
    before = result(first)
    again = Federation.resume(tmp_path / "run", from_round=2).run()
    assert result(again) == before
    with pytest.raises(StoreError, match=r"round 0 of .* is not kept; kept: "):
        Federation.resume(tmp_path / "run", from_round=0)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    first = result(run(small(), tmp_path / "run"))
    (tmp_path / "run" / "summary.json").unlink()  # as if killed right after the last commit
    metrics = tmp_path / "run" / "rounds.jsonl"
    committed = metrics.read_bytes()
    metrics.write_bytes(committed + b'{"half a row')
    assert result(Federation.resume(tmp_path / "run").run()) == first
    assert metrics.read_bytes() == committed


def test_resuming_on_other_data_is_refused(tmp_path: Path) -> None:
    run(small(train__rounds=1), tmp_path / "run")
    path = tmp_path / "run" / "environment.json"
    path.write_text(path.read_text().replace('"data": "', '"data": "0'))
    with pytest.raises(StoreError, match="other data"):
        Federation.resume(tmp_path / "run", rounds=2).run()
    with pytest.raises(StoreError, match="other data"):
        open_run(tmp_path / "run").model("client-0000")


def test_a_place_that_is_taken_is_refused(tmp_path: Path) -> None:
    run(small(train__rounds=1), tmp_path / "run")
    with pytest.raises(StoreError, match="already holds a run: continue it with 'pfedes resume"):
        run(small(), tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    with pytest.raises(StoreError, match="not an empty directory"):
        run(small(), tmp_path / "other")


def test_runs_are_numbered(tmp_path: Path) -> None:
    names = [Federation(small(train__rounds=1)).run().directory for _ in range(2)]
    assert [str(name) for name in names] == ["runs/pfedes-digits", "runs/pfedes-digits-2"]


def test_selection_is_uniform_and_without_repetition() -> None:
    names = [f"c{number}" for number in range(10)]
    counts = dict.fromkeys(names, 0)
    for seed in range(2000):
        chosen = list(uniform(names, 3, np.random.default_rng(seed)))
        assert len(set(chosen)) == 3
        for name in chosen:
            counts[name] += 1
    # 600 expected each, standard deviation about 20.
    assert all(500 < count < 700 for count in counts.values())


def test_the_number_of_selected_clients_is_rounded(tmp_path: Path) -> None:
    for participation, expected in [(0.01, 1), (0.3, 1), (0.7, 3), (1.0, 4)]:
        config = small(train__participation=participation, train__rounds=1)
        finished = run(config, tmp_path / str(participation))
        assert finished.rounds[0]["selected"] == expected


def test_another_selection_can_be_given(tmp_path: Path) -> None:
    def first(names: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
        return list(names[:count])

    finished = run(small(train__participation=0.5), tmp_path / "run", select=first)
    assert [row["client"] for row in finished.clients] == ["client-0000", "client-0001"] * 2


def test_a_bad_upload_is_rejected_and_the_round_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poison(reply: Reply) -> Reply:
        if reply.client != "client-0001":
            return reply
        theta = {k: torch.full_like(v, torch.nan) for k, v in reply.payload.tensors.items()}
        return Reply(reply.client, Payload(theta, reply.payload.meta))

    tampered(monkeypatch, poison)
    finished = run(small(runtime__report=True), tmp_path / "run")
    rejected = finished.summary["rejected_uploads"]
    assert [(event["client"], event["round"]) for event in rejected] == [
        ("client-0001", 1),
        ("client-0001", 2),
    ]
    assert "holds NaN" in rejected[0]["reason"]
    assert finished.manifest.clients["client-0001"].version == 0
    assert finished.store.clients.versions(finished.manifest.run, "client-0001") == []
    assert finished.rounds[-1]["rejected"] == 1
    assert finished.rounds[-1]["answered"] == 3
    state = finished.store.server_state(finished.manifest)
    assert all(torch.isfinite(tensor).all() for tensor in state.tensors.values())
    page = (tmp_path / "run" / "report.html").read_text()
    assert "upload rejected" in page


def test_a_failed_round_accepts_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(reply: Reply) -> Reply | Failure:
        lost = reply.client != "client-0000" and reply.payload.meta["round"] == 2
        return Failure(reply.client, "lost") if lost else reply

    tampered(monkeypatch, drop)
    finished = run(small(train__min_uploads=2, runtime__keep_rounds=3), tmp_path / "run")
    assert [row["status"] for row in finished.rounds] == ["ok", "failed"]
    assert finished.rounds[1]["accuracy"] == finished.rounds[0]["accuracy"]
    assert finished.rounds[1]["accuracy_selected"] is None
    assert finished.manifest.clients == finished.store.manifest(1).clients
    assert finished.manifest.server == finished.store.manifest(1).server
    assert len(finished.summary["failed_clients"]) == 3


def test_a_client_not_measured_after_aggregation_keeps_its_last_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its score right after training is of another model than the others'."""
    honest = SerialFleet.evaluate

    def evaluate(self: SerialFleet, tasks: Sequence[Task]) -> Iterator[Scored | Failure]:
        for answer in honest(self, tasks):
            silent = answer.client == "client-0001" and tasks[0].round == 2
            yield Failure(answer.client, "no answer") if silent else answer

    monkeypatch.setattr(SerialFleet, "evaluate", evaluate)
    finished = run(small("fedavg", models__pool=["cnn5"]), tmp_path / "run")
    before = finished.store.manifest(1).clients["client-0001"]
    after = finished.manifest.clients["client-0001"]
    assert after.version == 2
    assert after.scores == before.scores != after.local


class Loses(Listener):
    """Takes clients' files away after a round, while the run continues."""

    def __init__(self, store: RunStore, after: int, lost: dict[str, list[int]]) -> None:
        self.store, self.after, self.lost = store, after, lost

    def round_done(self, row: Row) -> None:
        if row["round"] == self.after:
            for name, versions in self.lost.items():
                self.store.clients.discard(self.store.manifest().run, name, versions)


def test_a_client_that_lost_its_state_starts_from_what_both_know(tmp_path: Path) -> None:
    loses = Loses(RunStore(tmp_path / "run"), 2, {"client-0001": [2], "client-0002": [1, 2]})
    again = run(small(train__rounds=4), tmp_path / "run", listener=loses)
    lost = [(row["client"], row["status"], row["reason"]) for row in again.clients[8:12]]
    assert lost[1] == ("client-0001", "failed", "missing base")
    assert lost[2] == ("client-0002", "failed", "missing base")
    assert all(row["status"] == "ok" for row in again.clients[12:])
    assert {s.version for s in again.manifest.clients.values()} == {4}


def test_a_newcomer_that_lost_its_state_begins_again(tmp_path: Path) -> None:
    """The manifests that are kept from before it came do not know it."""
    ledger = Ledger(run(small(), tmp_path / "run").store, small())
    ledger.admit([Card("new", 8, (3, 8, 8))], {"new": Scores(1, 2, 3, 4)})
    task = Task(ledger.manifest.run, "new", 3, 2, Payload())
    lost = Verdict(task, "failed", "missing base", versions=(1, 7))
    assert ledger.standings([lost], ok=True)["new"].version == 0


def test_a_participant_restored_from_an_old_copy_starts_from_what_was_accepted_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests of so long ago are gone, but the metrics say what was accepted."""

    def failing(reply: Reply) -> Reply | Failure:
        missing = reply.client == "client-0003" and reply.payload.meta["round"] == 2
        return Failure(reply.client, "no answer") if missing else reply

    tampered(monkeypatch, failing)
    store = run(small(train__rounds=5, train__min_uploads=4), tmp_path / "run").store
    assert not {1, 2} & set(store.rounds())
    ledger = Ledger(store, small())
    lost = Verdict(
        Task(ledger.manifest.run, "client-0001", 6, 5, Payload()),
        "failed",
        "missing base",
        versions=(1, 2),
    )

    def back() -> int:
        return ledger.standings([lost], ok=True)["client-0001"].version

    assert back() == 0  # a simulation's store has no other versions than the manifests name
    monkeypatch.setattr(RunStore, "is_elsewhere", True)
    assert back() == 1  # round 2 failed as a whole, so its version was never accepted


def test_a_newcomer_does_not_make_every_later_round_look_worse(tmp_path: Path) -> None:
    """Patience compares like with like: the best round's mean counts the newcomer, untrained."""
    ledger = Ledger(run(small(), tmp_path / "run").store, small())
    best, there = ledger.manifest.best_validation, len(ledger.manifest.clients)
    assert best is not None
    ledger.admit([Card("new", 8, (3, 8, 8))], {"new": Scores(1, 10, 3, 4)})
    assert ledger.manifest.best_validation == pytest.approx((there * best + 0.1) / (there + 1))
    ledger.admit([Card("newer", 8, (3, 8, 8))], {"newer": Scores(0, 0, 3, 4)})  # no validation
    assert ledger.manifest.best_validation == pytest.approx((there * best + 0.1) / (there + 1))


def test_a_run_that_continues_has_no_summary_yet(tmp_path: Path) -> None:
    run(small(train__rounds=1), tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        Federation.resume(tmp_path / "run", rounds=3, listener=Stop(2)).run()
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("text", [None, "{", "[]", "{}"])
def test_a_damaged_environment_is_named(text: str | None, tmp_path: Path) -> None:
    run(small(train__rounds=1), tmp_path / "run")
    path = tmp_path / "run" / "environment.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(StoreError, match=r"environment.json (cannot be read|is damaged)"):
        Federation.resume(tmp_path / "run", rounds=2).run()


def test_damaged_rows_are_named(tmp_path: Path) -> None:
    run(small(train__rounds=1), tmp_path / "run")
    (tmp_path / "run" / "state" / "manifests" / "notes.json").write_text("mine")
    path = tmp_path / "run" / "rounds.jsonl"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(StoreError, match=r"rounds.jsonl is damaged"):
        open_run(tmp_path / "run")


def test_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing is accepted after round 1, so validation never improves on it.
    def first_only(reply: Reply) -> Reply | Failure:
        return reply if reply.payload.meta["round"] == 1 else Failure(reply.client, "lost")

    tampered(monkeypatch, first_only)
    finished = run(small(train__rounds=50, train__patience=3), tmp_path / "run")
    assert finished.manifest.best_round == 1
    assert finished.manifest.round == 4
    assert finished.finished


def test_the_best_round_is_chosen_by_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opposed(reply: Reply) -> Reply:
        meta = dict(reply.payload.meta)
        right, wrong = ("val", "test") if meta["round"] == 1 else ("test", "val")
        meta |= {f"{right}_correct": meta[f"{right}_total"], f"{wrong}_correct": 0}
        return Reply(reply.client, Payload(reply.payload.tensors, meta))

    tampered(monkeypatch, opposed)
    finished = run(small(train__rounds=2), tmp_path / "run")
    assert [row["accuracy"] for row in finished.rounds] == [0, 1]
    assert finished.manifest.best_round == 1
    assert finished.summary["best_accuracy"] == 0


def test_costs_until_a_target_by_hand() -> None:
    rounds = [
        {"round": 1, "accuracy": 0.2, "floats_down": 1, "floats_up": 2, "flops": 10},
        {"round": 2, "accuracy": 0.8, "floats_down": 3, "floats_up": 4, "flops": 20},
        {"round": 3, "accuracy": 0.5, "floats_down": 5, "floats_up": 6, "flops": 30},
    ]
    assert until(0.5, rounds) == {"accuracy": 0.5, "round": 2, "floats": 10, "flops": 30}
    assert until(0.9, rounds) == {"accuracy": 0.9, "round": None, "floats": None, "flops": None}


def test_a_clients_model_can_be_had_and_used(tmp_path: Path) -> None:
    finished = run(small(), tmp_path / "run")
    opened = open_run(tmp_path / "run")
    model = opened.model("client-0000", best=True)
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    with pytest.raises(StoreError, match="unknown client 'client-1'; did you mean 'client-0"):
        finished.model("client-1")


def test_a_client_that_came_after_the_best_round_has_no_model_of_it(tmp_path: Path) -> None:
    finished = run(small(train__rounds=1), tmp_path / "run")
    clients = finished.manifest.clients
    grown = {**clients, "new": clients["client-0000"]}
    finished.manifest = finished.manifest.model_copy(update={"clients": grown})
    with pytest.raises(StoreError, match="new came after round 1, the best by validation"):
        finished.personal("new", best=True)


def test_no_validation_samples_is_no_problem(tmp_path: Path) -> None:
    finished = run(small(partition__split=[0.8, 0.0, 0.2]), tmp_path / "run")
    assert finished.summary["best_round"] is None
    assert finished.rounds[-1]["val_accuracy"] is None


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.repeat) for s in (1, 2))])
def test_it_learns(seed: int, tmp_path: Path) -> None:
    """The default digits run, cut to a quarter of its work; the whole one is run by CI."""
    settings: dict[str, Any] = {"data__limit": 300, "train__epochs": 4, "train__rounds": 4}
    config = small(**settings, models__pool=["cnn5"], seed=seed)
    summary = run(config, tmp_path / "run").summary
    assert summary["mean_accuracy"] > max(0.85, summary["initial_accuracy"] + 0.4)
