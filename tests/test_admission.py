"""Hostile and broken answers: each is turned away, named and counted; the round continues."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from pfedes import Federation, Payload, PFedES, Run
from pfedes.core.protocol import Failure, Reply, Task
from pfedes.errors import FailedRunError
from pfedes.federation.loop import Selector, uniform
from pfedes.fleet.serial import SerialFleet
from running import result, small

LIAR = "client-0001"
Answers = list[Reply | Failure]


def federation(
    tampering: Callable[[Reply], Answers],
    monkeypatch: pytest.MonkeyPatch,
    out: Path,
    select: Selector = uniform,
    **settings: Any,
) -> Run:
    """A run in which one client's replies are tampered with on the way."""
    honest = SerialFleet.round

    def round(self: SerialFleet, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
        for answer in honest(self, tasks):
            assert isinstance(answer, Reply), answer
            yield from tampering(answer) if answer.client == LIAR else [answer]

    monkeypatch.setattr(SerialFleet, "round", round)
    return Federation(small(**{"train__rounds": 1, **settings}), out=out, select=select).run()


def meta(**changes: Any) -> Callable[[Reply], Answers]:
    def tamper(reply: Reply) -> Answers:
        merged = {**reply.payload.meta, **changes}
        kept = {key: value for key, value in merged.items() if value is not None}
        return [Reply(reply.client, Payload(reply.payload.tensors, kept))]

    return tamper


def tensors(change: Callable[[dict[str, torch.Tensor]], dict[str, Any]]) -> Any:
    def tamper(reply: Reply) -> Answers:
        changed = {**reply.payload.tensors, **change(reply.payload.tensors)}
        kept = {key: value for key, value in changed.items() if value is not None}
        return [Reply(reply.client, Payload(kept, reply.payload.meta))]

    return tamper


BAD = {
    "nan": (tensors(lambda t: {"conv1.bias": t["conv1.bias"] * math.nan}), "holds NaN or inf"),
    "inf": (tensors(lambda t: {"conv1.bias": t["conv1.bias"] + math.inf}), "holds NaN or inf"),
    "foreign": (tensors(lambda t: {"secret": t["conv1.bias"]}), "'secret' is not on the allow-l"),
    "missing": (tensors(lambda t: {"conv2.bias": None}), "'conv2.bias' is missing"),
    "shape": (tensors(lambda t: {"conv1.bias": t["conv1.bias"][:7]}), "[7] float32, expected [8]"),
    "dtype": (tensors(lambda t: {"conv1.bias": t["conv1.bias"].double()}), "float64, expected"),
    "extra metadata": (meta(age=3), "'age' is not on the allow-list"),
    "lost metadata": (meta(loss=None), "'loss' is missing"),
    "nan loss": (meta(loss=math.nan), "'loss' is nan"),
    "negative samples": (meta(samples=-5), "'samples' is -5"),
    "no samples": (meta(samples=0), "'samples' is 0"),
    "fractional samples": (meta(samples=33.5), "'samples' is 33.5"),
    "whole but fractional": (meta(samples=33.0), "'samples' is 33.0"),
    "true samples": (meta(samples=True), "'samples' is True"),
    "more samples": (meta(samples=10**9), "'samples' is 1000000000, expected"),
    "another run": (meta(run="another"), "'run' is 'another'"),
    "another round": (meta(round=9), "'round' is 9, expected 1"),
    "another base": (meta(base=7), "'base' is 7, expected 0"),
    "better than all": (meta(test_correct=10**6), "impossible scores"),
    "no test": (meta(test_total=0, test_correct=0), "'test_total' is 0"),
    "negative flops": (meta(flops=-1), "'flops' is -1"),
    "endless seconds": (meta(seconds=math.inf), "'seconds' is inf"),
    "no digest": (meta(state="../../etc/passwd"), "'state' is '../../etc/passwd'"),
    "too much": (meta(zeros=1.5), "'zeros' is 1.5"),
    "\x1b[31mcolour": (meta(run="\x1b[31m" + "x" * 10_000), "'run' is '\\x1b[31mxxx"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_upload_is_rejected_named_and_counted(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tamper, reason = BAD[case]
    few: dict[str, Any] = {"models__pool": ["cnn5"], "data__limit": 100}
    run = federation(tamper, monkeypatch, tmp_path / "run", **few)
    (event,) = run.summary["rejected_uploads"]
    assert (event["client"], event["round"]) == (LIAR, 1)
    assert reason in event["reason"]
    assert len(event["reason"]) <= 300
    assert event["reason"].isprintable()
    row = run.rounds[0]
    counted = row["selected"], row["answered"], row["rejected"], row["failed"], row["status"]
    assert counted == (4, 3, 1, 0, "ok")
    # The client is where it was, and nothing of what it sent is in the server's state.
    assert run.manifest.clients[LIAR].version == 0
    assert run.store.clients.versions(run.manifest.run, LIAR) == []
    theta = run.store.server_state(run.manifest).tensors
    assert all(tensor.isfinite().all() for tensor in theta.values())


def test_a_second_answer_is_not_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = result(Federation(small(train__rounds=1), out=tmp_path / "straight").run())

    def twice(reply: Reply) -> Answers:
        return [reply, *tensors(lambda t: {"conv1.bias": t["conv1.bias"] + 9})(reply)]

    run = federation(twice, monkeypatch, tmp_path / "run")
    (event,) = run.summary["rejected_uploads"]
    assert event == {"client": LIAR, "round": 1, "reason": "a second answer to one task"}
    assert (run.rounds[0]["selected"], run.rounds[0]["rejected"]) == (4, 1)
    assert run.rounds[0]["floats_down"] == 4 * 443
    assert run.rounds[0]["floats_up"] == 5 * 443  # it did travel
    assert result(run)["server"] == straight["server"]
    assert result(run)["versions"] == straight["versions"]


@pytest.mark.parametrize("name", ["client-0002", "nobody", "../../etc", "[/bold]\x1b[31m", ""])
def test_an_answer_from_a_client_that_was_not_asked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(names: Sequence[str], count: int, rng: object) -> Sequence[str]:
        return names[:2]

    def intrude(reply: Reply) -> Answers:
        return [reply, Reply(name, reply.payload), Failure(name, "let me in")]

    half = {"train__participation": 0.5}
    run = federation(intrude, monkeypatch, tmp_path / "run", select=first, **half)
    events = run.summary["rejected_uploads"]
    assert [event["reason"] for event in events] == ["was not asked"] * 2
    row = run.rounds[0]
    assert (row["selected"], row["answered"], row["rejected"]) == (2, 2, 2)
    assert sorted(path.name for path in (tmp_path / "run" / "state" / "clients").iterdir()) == [
        "client-0000",
        "client-0001",
    ]


def test_a_client_that_does_not_answer_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = federation(lambda reply: [], monkeypatch, tmp_path / "run")
    assert run.summary["failed_clients"] == [
        {"client": LIAR, "round": 1, "reason": "no answer", "code": "silent"}
    ]


@pytest.mark.parametrize("method", ["pfedes", "fedavg", "fml", "fedkd", "lg_fedavg", "fedmrl"])
def test_too_large_a_change_is_rejected(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exaggerate(reply: Reply) -> Answers:
        scaled = {name: 1e4 * tensor for name, tensor in reply.payload.tensors.items()}
        return [Reply(reply.client, Payload(scaled, reply.payload.meta))]

    run = federation(
        exaggerate,
        monkeypatch,
        tmp_path / "run",
        method=method,
        models__pool=["cnn5"],
        aggregation__max_norm=100.0,
    )
    (event,) = run.summary["rejected_uploads"]
    assert event["client"] == LIAR
    assert "it differs from the download by" in event["reason"]
    assert "allowed: 100" in event["reason"]


@pytest.mark.parametrize(("sign", "size"), [(1, "inf"), (-1, "nan")])
def test_factors_whose_product_overflows_are_rejected(
    sign: int, size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two products of opposite signs add up to NaN."""

    def overflow(reply: Reply) -> Answers:
        huge = dict(reply.payload.tensors)
        for name in [name for name in huge if name.endswith("/factors")]:
            huge[name] = torch.full_like(huge[name], 1e30)
            huge[name][1:, 0] *= sign
        return [Reply(reply.client, Payload(huge, reply.payload.meta))]

    run = federation(overflow, monkeypatch, tmp_path / "run", method="fedkd")
    (event,) = run.summary["rejected_uploads"]
    assert f"it differs from the download by {size}" in event["reason"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"train__lr": 1e30}, "model 1e+30"),
        ({"method__extractor_lr": 1e30, "train__clip": 0}, "extractor 1e+30"),
    ],
)
def test_a_client_whose_loss_is_no_number_keeps_its_state(
    settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    config = small(train__rounds=1, **settings)
    with pytest.raises(FailedRunError) as failed:  # it is everybody's
        Federation(config, out=tmp_path / "run").run()
    assert "all 4 clients of round 1 failed" in str(failed.value)
    assert f"no longer finite in round 1 (learning rate: {said})" in str(failed.value)
    assert not list((tmp_path / "run" / "state" / "clients").rglob("*.safetensors"))


def test_the_others_continue_without_a_client_that_diverges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = PFedES.client_round

    def diverging(self: PFedES, client: Any, download: Payload, ctx: Any) -> Any:
        if client.name == LIAR and ctx.round == 2:
            for parameter in client.model.parameters():
                parameter.data.mul_(math.inf)
        return honest(self, client, download, ctx)

    monkeypatch.setattr(PFedES, "client_round", diverging)
    run = Federation(small(train__rounds=3), out=tmp_path / "run").run()
    (event,) = run.summary["failed_clients"]
    assert (event["client"], event["round"]) == (LIAR, 2)
    assert "the loss is no longer finite in round 2 (learning rate: model 0.01)" in event["reason"]
    assert [row["answered"] for row in run.rounds] == [4, 3, 4]
    assert run.manifest.clients[LIAR].version == 3
    assert run.clients[-3]["accuracy"] is not None


@pytest.mark.parametrize("size", [1e13, 1e37])
def test_a_huge_update_does_not_ruin_what_the_server_holds(
    size: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def enlarge(reply: Reply) -> Answers:
        huge = {n: torch.full_like(t, size) for n, t in reply.payload.tensors.items()}
        return [Reply(reply.client, Payload(huge, reply.payload.meta))]

    run = federation(enlarge, monkeypatch, tmp_path / "run", method="fedkd", train__rounds=2)
    assert run.store.server_state(run.manifest).is_finite()
    assert run.summary["failed_clients"] == []
    if size > 1e15:
        assert [row["rejected"] for row in run.rounds] == [1, 1]


def test_an_aggregate_that_is_not_finite_fails_its_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: PFedES, state: Payload, uploads: Any, ctx: Any) -> Payload:
        return Payload({n: t * math.inf for n, t in state.tensors.items()})

    monkeypatch.setattr(PFedES, "aggregate", broken)
    run = Federation(small(train__rounds=2), out=tmp_path / "run").run()
    assert [row["status"] for row in run.rounds] == ["failed", "failed"]
    assert {standing.version for standing in run.manifest.clients.values()} == {0}
    assert run.store.server_state(run.manifest).is_finite()


def test_statistics_of_normalisation_must_be_finite_too() -> None:
    from pfedes.errors import TrainingError
    from pfedes.fleet.client_host import _check_finite
    from pfedes.population.simulation import Simulation

    simulation = Simulation(small())
    client = simulation.population.client(LIAR)
    client.model.add_module("norm", torch.nn.BatchNorm1d(3))
    _check_finite(client, simulation.context(4))
    client.model.get_buffer("norm.running_var")[1] = math.inf
    with pytest.raises(TrainingError, match=r"norm.running_var is no longer finite in round 4"):
        _check_finite(client, simulation.context(4))
