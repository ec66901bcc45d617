"""Noise in federations: whose key it has, who counts, and what a participant allows."""

import json
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from certified import authority, certified
from guests import Remote, ada, enrolled, task, terms
from pfedes import Federation, cli
from pfedes.config import Config
from pfedes.config.limits import Limits
from pfedes.core.payload import Payload
from pfedes.core.protocol import SUMMAND, Failure, Reply, Task
from pfedes.deploy.coordinator.terms import with_norm
from pfedes.deploy.participant.handler import ParticipantHandler, own_config
from pfedes.deploy.participant.sum_part import Identity
from pfedes.errors import ConfigError, DamageError
from pfedes.fleet.client_host import ClientHost, host_of
from pfedes.fleet.serial import with_threads
from pfedes.population.simulation import Simulation
from pfedes.privacy.accounting import epsilon_of
from pfedes.privacy.config import PrivacyConfig
from pfedes.privacy.encoding import ONE
from pfedes.securesum.collector import Total
from pfedes.store.client_store import ClientStore
from running import rows


def noisy(mode: str, **settings: Any) -> Config:
    metadata = "all" if mode == "central" else "none"
    settings = {"privacy__metadata": metadata, **settings}
    return terms(privacy__mode=mode, privacy__noise=2.0, **settings)


def host_of_ada(place: Path, config: Config, **limits: Any) -> ClientHost:
    """What works at ada's, in this process."""
    place.mkdir(exist_ok=True)
    tree = config.settled().model_dump(mode="json", exclude={"participants", "compare"})
    simulation = Simulation(own_config(tree, ada(place, limits=Limits(**limits))))
    return host_of(simulation, ClientStore(place / "clients"))


def sent(host: ClientHost, round: int, base: int, run: str = "run") -> dict[str, torch.Tensor]:
    """What ada uploads in a round."""
    with with_threads(1):
        answer = host.answer(task(round, base, run))
    assert isinstance(answer, Reply), answer
    return answer.payload.tensors


def refused(host: ClientHost, round: int, base: int) -> Failure:
    answer = host.answer(task(round, base))
    assert isinstance(answer, Failure)
    return answer


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_a_participant_adds_its_own_noise_and_counts_it_itself(tmp_path: Path) -> None:
    limit = epsilon_of(2, 2.0, 1e-5) + 0.1
    host = host_of_ada(tmp_path, noisy("local"), epsilon=limit)
    first = sent(host, 1, 0)
    key, account = tmp_path / "noise.key", tmp_path / "privacy.jsonl"
    assert stat.S_IMODE(key.stat().st_mode) == stat.S_IMODE(account.stat().st_mode) == 0o600
    assert [row["clients"] for row in rows(account)] == [["ada"]]
    assert same(sent(host, 1, 0), first)
    # The version is gone and trained again: the same change, and so the same noise.
    host.store.discard("run", "ada", [1])
    assert same(sent(host, 1, 0), first)
    assert len(rows(account)) == 1
    # Another run of the same is another release.
    assert not same(sent(host, 1, 0, run="other"), first)
    assert len(rows(account)) == 2
    over = refused(host, 2, 1)
    assert (over.code, over.reason[:26]) == ("refused", "ada has spent epsilon 2.94")
    assert len(rows(account)) == 2
    # Without a limit it continues, but never with another key.
    unlimited = host_of_ada(tmp_path, noisy("local"))
    key.unlink()
    assert "noise.key is gone" in refused(unlimited, 2, 1).reason
    account.write_bytes(b'{"round": 0}\n')
    assert "privacy.jsonl is damaged" in refused(unlimited, 2, 1).reason


def test_what_the_kit_promises_for_a_run_is_kept_by_the_participant(tmp_path: Path) -> None:
    """Without a limit of its own, and though the coordinator may count as it likes."""
    promise = epsilon_of(1, 2.0, 1e-5) + 0.1
    host = host_of_ada(tmp_path, noisy("local", privacy__epsilon=promise))
    first = sent(host, 1, 0)
    over = refused(host, 2, 1)
    assert over.code == "refused"
    assert "that the kit promises for a run" in over.reason
    # Killed after it was counted and before it was stored: the same again costs nothing.
    host.store.discard("run", "ada", [1])
    assert same(sent(host, 1, 0), first)
    # Another change in that round would cost.
    host.store.discard("run", "ada", [1])
    asked = task(1, 0)
    halved = {name: tensor / 2 for name, tensor in asked.download.tensors.items()}
    assert isinstance(host.answer(replace(asked, download=Payload(halved))), Failure)
    assert len(rows(tmp_path / "privacy.jsonl")) == 1
    assert not same(sent(host, 1, 0, run="another"), first)


def test_a_change_is_never_released_with_two_noises(tmp_path: Path) -> None:
    """A kit may leave the noise open: a coordinator could enrol everybody again with another."""
    config = noisy("local")
    other = config.model_copy(update={"privacy": config.privacy.model_copy(update={"noise": 2.1})})
    kit = config.privacy.model_copy(update={"noise": 0.0, "epsilon": 99.0})
    promised = {"epsilon": kit.epsilon}
    assert all(c.privacy.model_copy(update=promised).keeps(kit) for c in (config, other))
    host = host_of_ada(tmp_path, config)
    first = sent(host, 1, 0)
    again = refused(host_of_ada(tmp_path, other), 1, 0)
    assert again.code == "refused"
    assert "noise of 2 x clip: it is not released with 2.1 x clip" in again.reason
    assert len(rows(tmp_path / "privacy.jsonl")) == 1
    assert same(sent(host, 1, 0), first)


def test_a_summand_has_the_participants_own_share_of_the_noise(tmp_path: Path) -> None:
    """Its variance suffices if all but one of `least` add theirs, and it is nobody else's."""
    people = ["ada", "ben", "cleo"]
    shared: dict[str, Any] = {
        "privacy__secure_sum": True,
        "federation__participants": people,
        "privacy__clip": 10.0,
    }
    plain = terms(**shared, privacy__metadata="none")
    quiet = sent(host_of_ada(tmp_path / "quiet", plain), 1, 0)[SUMMAND]
    host = host_of_ada(tmp_path / "ada", noisy("distributed", **shared))
    summand = sent(host, 1, 0)[SUMMAND]
    weight = int(quiet[-1])
    noise = (summand - quiet[:-1] // weight).double()
    share = 2.0 * ONE / 2**0.5  # z C over the root of least - 1
    assert float(noise.std()) == pytest.approx(share, rel=0.15)
    assert abs(float(noise.mean())) < share / 4
    assert len(rows(tmp_path / "ada" / "privacy.jsonl")) == 1
    assert (tmp_path / "ada" / "noise.key").exists()
    # Made again it is the same; by another key, or in another run, it is another.
    host.store.discard("run", "ada", [1])
    assert torch.equal(sent(host, 1, 0)[SUMMAND], summand)
    assert not torch.equal(sent(host, 1, 0, run="another")[SUMMAND], summand)
    other = host_of_ada(tmp_path / "other", noisy("distributed", **shared))
    assert not torch.equal(sent(other, 1, 0)[SUMMAND], summand)


class Summing(Remote):
    """Adds up what its participants have ready; the masks are another test's matter."""

    def round(self, tasks: Sequence[Task]) -> Iterator[Reply | Failure]:
        self.ready: dict[str, torch.Tensor] = {}
        for asked in tasks:
            answer = self.hosts[asked.client].answer(asked)
            assert isinstance(answer, Reply), answer
            self.ready[asked.client] = answer.payload.tensors[SUMMAND]
            said = self.guests[asked.client]._without_own(answer.payload).meta
            member = {"nonce": "0" * 32, "sum_key": "0" * 64, "sum_signature": "0000"}
            yield replace(answer, payload=Payload({}, {**said, **member}))

    def total(self, round: int, replies: Sequence[Reply]) -> Total:
        names = tuple(reply.client for reply in replies)
        return Total(names, np.add.reduce([self.ready[name].numpy() for name in names]))


def test_a_federation_adds_noise_without_a_server_that_is_trusted(tmp_path: Path) -> None:
    config = with_norm(
        noisy(
            "distributed",
            privacy__secure_sum=True,
            federation__participants=["ada", "ben", "cleo"],
            train__rounds=1,
        )
    )
    fleet = Summing(config, tmp_path)
    run = Federation(config, out=tmp_path / "run", fleet=lambda *_: fleet).run()
    assert [row["status"] for row in run.rounds] == ["ok"]
    assert run.summary["privacy"]["releases"] == [1, 1, 1]
    assert run.summary["mean_accuracy"] is None
    assert not (run.directory / "state" / "noise.key").exists()
    for name in ("ada", "ben", "cleo"):
        assert len(rows(tmp_path / name / "privacy.jsonl")) == 1
    # What the kits name says among how many the noise is shared out, and nothing else does.
    with pytest.raises(ConfigError, match=r"must not exceed privacy\.least"):
        Simulation(config.model_copy(update={"train": config.train.model_copy(
            update={"min_uploads": 4})}))  # fmt: skip


def test_what_a_coordinator_promises_is_counted_too(tmp_path: Path) -> None:
    central, off = tmp_path / "central", tmp_path / "off"
    upload = sent(host_of_ada(central, noisy("central")), 1, 0)
    assert same(upload, sent(host_of_ada(off, terms()), 1, 0))
    assert len(rows(central / "privacy.jsonl")) == 1
    assert not list(tmp_path.rglob("noise.key"))
    assert not (off / "privacy.jsonl").exists()
    limited = host_of_ada(off, terms(), epsilon=4.0).introduce(task(0, 0))
    assert isinstance(limited, Failure)
    assert "nobody adds noise" in limited.reason


def test_a_participant_insists_on_sums_with_enough_others(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="counts those in a sum"):
        Limits(co_participants=3)
    open_terms = host_of_ada(tmp_path, terms(), secure_sum=True).introduce(task(0, 0))
    assert isinstance(open_terms, Failure)
    assert "limits.secure_sum allows at least 1" in open_terms.reason
    root = authority()
    kit = PrivacyConfig(secure_sum=True, metadata="none")
    for others, least in ((0, 3), (4, 5)):
        person = ada(tmp_path, limits=Limits(secure_sum=True, co_participants=others))
        identity = Identity(certified("ada", root).key, root.certificate)
        guest = ParticipantHandler(person, terms().federation, kit, identity)
        assert guest._sums is not None
        assert guest._sums.least == least


def test_terms_that_are_not_those_of_the_kit_are_refused(tmp_path: Path) -> None:
    config = noisy("central")
    for kit in (PrivacyConfig(), PrivacyConfig(mode="central", noise=3.0)):
        guest = ParticipantHandler(ada(tmp_path), config.federation, kit)
        guest.seat.make()
        assert enrolled(guest, config)["kind"] == "failure"


def test_which_changes_of_privacy_keep_its_promise() -> None:
    open_noise = PrivacyConfig(mode="central", epsilon=8.0)
    fixed = PrivacyConfig(mode="central", epsilon=8.0, noise=0.8)
    assert fixed.keeps(open_noise)
    assert fixed.model_copy(update={"epsilon": 4.0}).keeps(open_noise)
    assert not fixed.model_copy(update={"epsilon": 9.0}).keeps(open_noise)
    assert not fixed.model_copy(update={"epsilon": 0.0}).keeps(open_noise)
    assert not open_noise.model_copy(update={"clip": 2.0}).keeps(open_noise)
    assert not fixed.keeps(fixed.model_copy(update={"noise": 0.9}))


def test_a_server_keeps_the_secret_of_its_noise(tmp_path: Path) -> None:
    config = with_norm(noisy("central", train__rounds=2))
    assert config.aggregation.max_norm == 0

    remote = Remote(config, tmp_path)

    def fleet(*_: Any) -> Remote:
        return remote

    first = Federation(config, out="first", fleet=fleet).run()
    second = Federation(config, out="second", fleet=fleet).run()
    assert [row["status"] for row in first.rounds] == ["ok", "ok"]
    keys = [Path(run, "state", "noise.key").read_bytes() for run in ("first", "second")]
    assert keys[0] != keys[1]
    assert first.manifest.server_digest != second.manifest.server_digest
    assert len(rows(Path("first/privacy.jsonl"))) == 2
    # Both participants were in all four releases, and have counted them.
    for name in ("ada", "ben"):
        assert len(rows(tmp_path / name / "privacy.jsonl")) == 4
    Path("first/state/noise.key").unlink()
    with pytest.raises(DamageError, match=r"noise\.key is gone"):
        Federation.resume("first", rounds=3, fleet=fleet).run()


def test_check_tells_the_price_before_anybody_joins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    person = ada(tmp_path / "state")
    text = "\n".join(f"{key} = {json.dumps(getattr(person, key))}" for key in ("name", "model"))
    file = tmp_path / "ada.toml"
    file.write_text(f"{text}\ndata = {json.dumps(person.data)}\n[limits]\nepsilon = 4.0\n")
    federation = tmp_path / "federation.toml"
    federation.write_text(noisy("central").to_toml())
    assert cli.execute(["check", str(file), "--federation", str(federation)]) == 0
    shown = capsys.readouterr().out
    assert "samples, loss, scores, zeros" in shown
    assert "up to 3 releases of each client" in shown
    assert "times as long as the largest change" in shown
    assert "the coordinator adds the noise" in shown
    federation.write_text(terms().to_toml())
    assert cli.execute(["check", str(file), "--federation", str(federation)]) == 2
