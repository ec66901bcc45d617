"""Runs with a secure sum in one process: the integers that a federation would add up unseen."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from guests import ada, terms
from pfedes import ConfigError, Federation, MethodError, Run
from pfedes.core.protocol import SUMMAND, Failure, Reply, Task
from pfedes.deploy.coordinator.terms import with_norm
from pfedes.deploy.participant.handler import own_config
from pfedes.errors import WireError
from pfedes.fleet.allow_list import reply_spec
from pfedes.fleet.client_host import host_of
from pfedes.fleet.serial import SerialFleet
from pfedes.population.simulation import Simulation
from pfedes.privacy.config import PrivacyConfig
from pfedes.privacy.encoding import ONE
from pfedes.privacy.mechanism import MOST_WEIGHT, Mechanism
from pfedes.securesum.collector import Total
from pfedes.store.client_store import ClientStore
from running import result, small

SUMMED: Mapping[str, Any] = {
    "privacy__secure_sum": True,
    "privacy__clip": 100.0,
    "train__rounds": 1,
}


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Federation(small(**SUMMED), out=tmp_path_factory.mktemp("summed") / "run").run()


def test_a_run_gives_the_same_bits_in_every_fleet_and_nearly_those_of_the_mean(
    tmp_path: Path, summed: Run
) -> None:
    workers = small(**SUMMED, runtime__fleet="workers", runtime__workers=2)
    assert result(Federation(workers, out=tmp_path / "workers").run()) == result(summed)
    plain = Federation(small(train__rounds=1), out=tmp_path / "plain").run()
    states = [run.store.server_state(run.manifest).tensors for run in (summed, plain)]
    for name, tensor in states[0].items():
        assert torch.allclose(tensor, states[1][name], atol=4 * 100 / ONE)
        assert not torch.equal(tensor, states[1][name])  # it was rounded
    assert summed.summary["floats_up"] == 4 * 444


def test_a_summand_is_the_clipped_change_times_the_samples() -> None:
    """By hand: a change of (3, 4) has norm 5; clipped to 1 it is (0.6, 0.8)."""
    mechanism = Mechanism(PrivacyConfig(secure_sum=True), 1, lambda name: bytes(32))
    sent = {"g": torch.tensor([1.0, 1.0])}
    upload = {"g": torch.tensor([4.0, 5.0])}
    found = mechanism.summand("ada", 1, upload, sent, 7)
    unit = np.trunc(np.array([0.6, 0.8]) * ONE).astype(np.int64)
    assert (np.abs(found[:2] - 7 * unit) <= 7).all()
    assert found[2] == 7
    other = mechanism.summand("ben", 1, {"g": torch.tensor([1.0, 1.5])}, sent, 1)
    mean = mechanism.mean_of(found + other, 2)
    assert mean == pytest.approx([7 * 0.6 / 8, (7 * 0.8 + 0.5) / 8], abs=1e-6)
    assert mechanism.summand("ada", 1, upload, sent, 10**9)[-1] == MOST_WEIGHT


@pytest.mark.parametrize(
    ("total", "reason"),
    [
        ([ONE * 9, 0, 8], "longer than clipped changes can be"),
        ([0, 0, 1], "counts 1 samples of 2"),
        ([0, 0, -5], "counts -5 samples"),
        ([0, 0, 2 * MOST_WEIGHT + 1], "samples of 2 clients"),
    ],
    ids=range(4),
)
def test_a_sum_that_cannot_be_right_is_no_sum(total: list[int], reason: str) -> None:
    mechanism = Mechanism(PrivacyConfig(secure_sum=True), 1, lambda name: bytes(32))
    with pytest.raises(WireError, match=reason):
        mechanism.mean_of(np.array(total, np.int64), 2)


def test_noise_of_all_is_in_the_sum_and_counted(tmp_path: Path, summed: Run) -> None:
    """Mode distributed: every client adds its share, and the account has a release a round."""
    noisy: dict[str, Any] = {**SUMMED, "privacy__mode": "distributed", "privacy__noise": 0.5}
    run = Federation(small(**noisy), out=tmp_path / "noisy").run()
    assert run.summary["privacy"]["releases"] == [1, 1, 1, 1]
    assert run.summary["floats_up"] == 4 * 443  # no weight: all weights are equal
    states = [r.store.server_state(r.manifest).tensors["conv1.weight"] for r in (run, summed)]
    # z = 0.5 on the sum of 4 changes with a clip of 100 is 12.5 on the mean, twice that variance
    # since two of three others must suffice (least = 3).
    deviation = float((states[0] - states[1]).std())
    assert deviation == pytest.approx(12.5 * 2**0.5, rel=0.25)


class Forgetful(SerialFleet):
    """A fleet that sums in secret, and loses some who were ready."""

    lost: frozenset[str] = frozenset()
    fails: bool = False

    def total(self, round: int, replies: Sequence[Reply]) -> Total:
        if self.fails:
            raise WireError("nobody opened")
        left = [reply for reply in replies if reply.client not in self.lost]
        values = [reply.payload.tensors[SUMMAND].numpy() for reply in left]
        return Total(tuple(r.client for r in left), np.add.reduce(values))


def forgetful(*lost: str, fails: bool = False) -> type[Forgetful]:
    return type("Lossy", (Forgetful,), {"lost": frozenset(lost), "fails": fails})


def test_a_client_outside_the_sum_stays_at_its_version(tmp_path: Path) -> None:
    def fleet(simulation: Simulation, store: ClientStore) -> SerialFleet:
        return forgetful("client-0001")(host_of(simulation, store), 1)

    run = Federation(small(**SUMMED), out=tmp_path / "run", fleet=fleet).run()
    rows = {row["client"]: (row["status"], row["reason"]) for row in run.clients}
    assert rows.pop("client-0001") == ("failed", "not in the secure sum")
    assert set(rows.values()) == {("ok", "")}
    assert run.manifest.clients["client-0001"].version == 0
    assert run.rounds[0]["answered"] == 3


def test_a_round_without_a_sum_has_failed(tmp_path: Path) -> None:
    def fleet(simulation: Simulation, store: ClientStore) -> SerialFleet:
        return forgetful(fails=True)(host_of(simulation, store), 1)

    run = Federation(small(**SUMMED), out=tmp_path / "run", fleet=fleet).run()
    assert [row["status"] for row in run.rounds] == ["failed"]
    assert {standing.version for standing in run.manifest.clients.values()} == {0}


def test_fewer_than_least_are_no_round(tmp_path: Path) -> None:
    """One of three clients cannot be trained, and three are the fewest."""

    class Missing(SerialFleet):
        def round(self, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
            for answer in super().round(tasks):
                missing = answer.client == "client-0000"
                yield Failure(answer.client, "away") if missing else answer

    config = small(**SUMMED, partition__clients=3, partition__classes_per_client=4)
    run = Federation(
        config, out=tmp_path / "run", fleet=lambda s, store: Missing(host_of(s, store), 1)
    ).run()
    assert [row["status"] for row in run.rounds] == ["failed"]


@pytest.mark.parametrize(
    ("method", "settings", "error", "reason"),
    [
        ("fedproto", {}, MethodError, "cannot be protected"),
        ("fedkd", {}, MethodError, "cannot be protected"),
        ("standalone", {}, MethodError, "cannot be protected"),
        ("pfedes", {"aggregation__kind": "median"}, ConfigError, "aggregation.kind must be 'mean'"),
        ("pfedes", {"aggregation__max_norm": 5.0}, ConfigError, "max_norm 0"),
        ("pfedes", {"privacy__mode": "central", "privacy__noise": 1.0}, ConfigError, "secure_sum"),
    ],
)
def test_what_cannot_be_summed_is_refused(
    method: str, settings: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        Simulation(small(method, **SUMMED, **settings))


def test_too_few_clients_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    config = small(**SUMMED, partition__clients=2, partition__classes_per_client=5)
    with pytest.raises(ConfigError, match=r"privacy\.least = 3.*selects 2 of 2"):
        Federation(config, out=tmp_path / "run").run()
    assert not (tmp_path / "run").exists()


def test_over_a_network_no_tensor_is_on_the_list_of_an_answer() -> None:
    people = ["ada", "ben", "cleo"]
    summed = {"privacy__secure_sum": True, "privacy__metadata": "scores"}
    config = terms(**summed, federation__participants=people)
    simulation = Simulation(with_norm(config))
    assert with_norm(config).aggregation.max_norm == 0
    ctx = simulation.context(1)
    card = Simulation(small()).population.cards(simulation.method.needs)[0]
    spec = reply_spec(simulation.method, card, ctx, over_network=True)
    assert spec.groups == ()
    assert {"nonce", "sum_key", "sum_signature"} <= spec.meta.keys()


def test_what_all_are_asked_for_is_known_to_each(tmp_path: Path) -> None:
    """By a participant's own reading of the terms, and by the server's."""
    people = ["ada", "ben", "cleo"]
    summed = {"privacy__secure_sum": True, "privacy__metadata": "none"}

    def seen(**settings: Any) -> str:
        config = terms(federation__participants=people, **summed, **settings).settled()
        given = tomllib.loads(config.to_toml())
        found = {config.asked_digest()}
        for person in (ada(tmp_path), ada(tmp_path, threads=2, precision="bf16")):
            found.add(own_config(given, person).asked_digest())
        (digest,) = found
        return digest

    usual = seen()
    assert seen(train__rounds=9, method__start_from="/srv/first.safetensors") == usual
    assert seen(federation__port=4711) == usual
    for other in (
        {"train__lr": 1e-6},
        {"method__extractor_epochs": 2},
        {"federation__mean": [1e6]},
        {"privacy__clip": 1e9},
        {"seed": 1},
    ):
        assert seen(**other) != usual
