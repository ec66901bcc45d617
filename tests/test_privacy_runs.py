"""Runs with a privacy budget: what is released, what it costs, and when a run ends by it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pfedes import Config, Federation, open_run
from pfedes.core.payload import Payload, State
from pfedes.core.protocol import Task
from pfedes.errors import ConfigError, DamageError, MethodError, PfedesError, StoreError
from pfedes.methods.contract import check_shared
from pfedes.population.simulation import Simulation
from pfedes.privacy.accounting import epsilon_of
from pfedes.privacy.budget import Budget, Prospect, Release
from pfedes.privacy.config import PrivacyConfig
from pfedes.privacy.encoding import ONE, digest_of
from pfedes.privacy.mechanism import Mechanism
from pfedes.privacy.noise import gaussian, stream_of_release
from pfedes.store.manifest import Manifest
from pfedes.store.run_store import RunStore
from running import failing, flipped, result, rows, small, truncated

KEY = bytes(32)


def noisy(mode: str = "central", **settings: Any) -> Config:
    """Three clients, two rounds."""
    return small(
        **{
            "data__limit": 80,
            "partition__clients": 3,
            "partition__classes_per_client": 6,
            "train__rounds": 2,
            "privacy__mode": mode,
            "privacy__noise": 2.0,
            **settings,
        }
    )


class CrashError(Exception):
    """Stands for a kill at this very moment."""


@contextmanager
def crash_before_commit_of(round: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The server dies after the account was written and before the round is committed."""
    write = RunStore.write_manifest

    def crashing(self: RunStore, manifest: Manifest) -> None:
        if manifest.round == round:
            raise CrashError
        write(self, manifest)

    with monkeypatch.context() as patched, pytest.raises(CrashError):  # noqa: PT012 (the caller's)
        patched.setattr(RunStore, "write_manifest", crashing)
        yield


def account(run: str = "run") -> list[dict[str, Any]]:
    return rows(Path(run) / "privacy.jsonl")


@pytest.mark.parametrize("mode", ["central", "local"])
def test_a_killed_server_continues_to_the_same_bits_and_is_charged_once(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Federation(noisy(mode), out="whole").run()
    with crash_before_commit_of(2, monkeypatch):
        Federation(noisy(mode), out="run").run()
    assert [row["round"] for row in account()] == [1, 2]
    assert open_run("run").summary["privacy"]["releases"] == [2, 2, 2]  # the second one counts
    resumed = Federation.resume("run").run()
    assert [row["round"] for row in account()] == [1, 2]
    assert result(resumed) == result(whole)
    assert resumed.summary["privacy"]["epsilon"] == [epsilon_of(2, 2.0, 1e-5)] * 3


def test_workers_add_the_noise_that_one_process_adds() -> None:
    """Two worker processes must be started."""
    here = Federation(noisy("local", train__rounds=1), out="here").run()
    settings = {"runtime__fleet": "workers", "runtime__workers": 2}
    there = Federation(noisy("local", train__rounds=1, **settings), out="there").run()
    assert there.manifest.server_digest == here.manifest.server_digest


def test_another_release_in_a_round_done_again_is_charged_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with crash_before_commit_of(2, monkeypatch):
        Federation(noisy(), out="run").run()
    failing(monkeypatch, "lost")  # another sum: the noise is another, too
    run = Federation.resume("run").run()
    assert [row["round"] for row in account()] == [1, 2, 2]
    assert run.summary["privacy"]["releases"] == [3, 2, 3]


def test_going_back_gives_no_epsilon_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Federation(noisy(runtime__keep_rounds=3), out="run").run()
    spent = first.summary["privacy"]["epsilon"]
    again = Federation.resume("run", from_round=1).run()
    assert again.summary["privacy"]["epsilon"] == spent  # the same release
    failing(monkeypatch, "lost")
    other = Federation.resume("run", from_round=0).run()
    assert other.summary["privacy"]["releases"] == [4, 2, 4]


def test_the_account_is_written_before_the_sum_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    def noticing(*arguments: Any) -> Any:
        assert len(account()) == 1
        raise CrashError

    monkeypatch.setattr(Mechanism, "mean", noticing)
    with pytest.raises(PfedesError, match="CrashError"):
        Federation(noisy(), out="run").run()


@pytest.mark.parametrize("spoil", [truncated, flipped, Path.unlink])
def test_an_account_that_was_cut_or_changed_is_damage(spoil: Any) -> None:
    Federation(noisy(), out="run").run()
    spoil(Path("run/privacy.jsonl"))
    for resume in ({}, {"from_round": 1}):
        with pytest.raises(DamageError, match=r"privacy\.jsonl"):
            Federation.resume("run", rounds=3, **resume).run()  # type: ignore[arg-type]


def test_an_unfinished_line_was_never_released(monkeypatch: pytest.MonkeyPatch) -> None:
    with crash_before_commit_of(2, monkeypatch):
        Federation(noisy(), out="run").run()
    path = Path("run/privacy.jsonl")
    path.write_bytes(path.read_bytes() + b'{"round": 2, "inp')
    failing(monkeypatch, "lost")
    Federation.resume("run").run()
    assert [row["round"] for row in account()] == [1, 2, 2]
    path.write_bytes(path.read_bytes() + b'{"round": 0}\n')
    with pytest.raises(DamageError, match=r"privacy\.jsonl is damaged"):
        Federation.resume("run", rounds=3).run()


def test_a_run_ends_when_the_budget_is_spent() -> None:
    limit = epsilon_of(2, 2.0, 1e-5) + 0.1
    config = noisy(privacy__epsilon=limit, train__rounds=5, runtime__report=True)
    run = Federation(config, out="run").run()
    assert (run.manifest.round, run.finished, run.summary["ended"]) == (2, True, "budget")
    assert max(run.summary["privacy"]["epsilon"]) <= limit
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["ended"] == "budget"
    page = Path("run/report.html").read_text()
    assert "the budget is spent" in page
    assert "reproducible noise protects nobody" in page
    assert Federation.resume("run", rounds=9).run().manifest.round == 2


def test_noise_from_epsilon_is_fixed_when_the_run_is_made() -> None:
    run = Federation(noisy(privacy__noise=0.0, privacy__epsilon=8.0), out="run").run()
    assert run.config.privacy.noise == 0.8489
    assert 7.99 < max(run.summary["privacy"]["epsilon"]) <= 8
    longer = Federation.resume("run", rounds=4).run()
    assert (longer.manifest.round, longer.summary["ended"]) == (2, "budget")


def test_clients_in_the_fewest_releases_are_asked_first() -> None:
    settings: dict[str, Any] = {
        "partition__clients": 5,
        "data__limit": 100,
        "partition__classes_per_client": 4,
    }
    run = Federation(noisy(**settings, train__rounds=4, train__participation=0.4), out="run").run()
    counted = run.summary["privacy"]["releases"]
    assert sum(counted) == 8
    assert max(counted) == 2  # ceil(4 rounds x 2 of 5 clients)


def change_privacy(**settings: Any) -> None:
    """What somebody edits in config.toml."""
    path = Path("run/config.toml")
    head, _, section = path.read_text().partition("[privacy]")
    for key, value in settings.items():
        section = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", section)
    path.write_text(f"{head}[privacy]{section}")


def test_a_run_keeps_what_it_promised() -> None:
    Federation(noisy(privacy__epsilon=9.0), out="run").run()
    for changed in ({"noise": 1.0}, {"mode": '"off"'}, {"epsilon": 10.0}, {"epsilon": 0.0}):
        before = Path("run/config.toml").read_text()
        change_privacy(**changed)
        assert Path("run/config.toml").read_text() != before
        with pytest.raises(StoreError, match="only epsilon may be lowered"):
            Federation.resume("run", rounds=3).run()
        Path("run/config.toml").write_text(before)
    lower = epsilon_of(2, 2.0, 1e-5) + 0.1
    change_privacy(epsilon=lower)
    run = Federation.resume("run", rounds=3).run()
    assert (run.manifest.round, run.summary["ended"]) == (2, "budget")
    assert run.summary["privacy"]["limit"] == lower


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"aggregation__kind": "median"}, ConfigError, "aggregation.kind must be 'mean'"),
        ({"aggregation__max_norm": 1.0}, ConfigError, "max_norm 0"),
        ({"train__patience": 2}, ConfigError, "train.patience must be 0"),
        ({"privacy__delta": 0.5}, ConfigError, "below 0.333"),
        ({"privacy__epsilon": 0.5}, ConfigError, "first release already costs"),
        (
            {"privacy__noise": 0.0, "privacy__epsilon": 1e-9, "privacy__delta": 1e-9},
            ConfigError,
            "is allowed",
        ),
        ({"method__sharing": "local"}, MethodError, "cannot be protected by noise"),
    ],
)
def test_promises_that_could_not_be_kept_are_refused(
    settings: dict[str, Any], error: type[PfedesError], message: str
) -> None:
    with pytest.raises(error, match=message):
        Federation(noisy(**settings), out="run").run()
    assert not Path("run").exists()


@pytest.mark.parametrize("method", ["standalone", "fd", "fedproto", "fedkd", "fedgh"])
def test_methods_whose_uploads_do_not_add_are_refused(method: str) -> None:
    config = small(method, privacy__mode="central", privacy__noise=1.0)
    with pytest.raises(MethodError, match="works with fedavg, fml, lg_fedavg, pfedes"):
        Simulation(config)


def test_another_additive_method_is_protected() -> None:
    few = {"data__limit": 60, "partition__clients": 2, "partition__classes_per_client": 5}
    one = {"train__rounds": 1, "models__pool": ["cnn5"], "privacy__clip": 0.5}
    noise = {"privacy__mode": "central", "privacy__noise": 0.001}
    run = Federation(small("lg_fedavg", **few, **one, **noise), out="run").run()
    before = run.store.server_state(run.store.manifest(0)).tensors
    after = run.store.server_state(run.manifest).tensors
    change = torch.cat([(after[name] - before[name]).flatten() for name in before])
    assert 0 < float(change.norm()) < 0.55  # the clip, and a little noise


@pytest.mark.parametrize("method", ["fedavg", "fml"])
def test_a_whole_model_is_too_large_to_be_hidden(method: str) -> None:
    config = small(method, models__pool=["cnn5"], privacy__mode="central", privacy__noise=1.0)
    with pytest.raises(MethodError, match=f"{method} shares 670,058 numbers"):
        Federation(config, out="run").run()


def test_the_mean_of_three_numbers_by_hand() -> None:
    config = PrivacyConfig(mode="central", clip=1.0, noise=1.0)
    mechanism = Mechanism(config, 1, lambda whose: KEY, "run")
    state = {"w": torch.tensor([1.0, 2.0])}
    near = mechanism.clipped({"w": torch.tensor([1.25, 2.0])}, state)
    far = mechanism.clipped({"w": torch.tensor([1.0, 6.0])}, state)  # clipped from 4 to 1
    assert near.tolist() == [ONE // 4, 0]
    assert far.tolist() == [0, ONE]
    changes = {"a": near, "b": far}
    noise = gaussian(2**48, 2, stream_of_release(KEY, "run", 3, digest_of(changes)))
    expected = (near + far + noise) / ONE / 2
    assert mechanism.mean(changes, 3).tolist() == expected.tolist()
    assert mechanism.own_variance == 0


def test_who_adds_how_much_noise() -> None:
    def variances(**keys: Any) -> tuple[int, int]:
        mechanism = Mechanism(PrivacyConfig(noise=2.0, **keys), 5, lambda whose: KEY)
        return mechanism.own_variance, mechanism.server_variance

    assert variances(mode="central") == (0, 2**50)
    assert variances(mode="local") == (2**50, 0)
    assert variances(mode="distributed", secure_sum=True) == (2**48, 0)
    assert variances(mode="distributed", secure_sum=True, least=9) == (2**47, 0)
    assert variances() == (0, 0)


def test_local_noise_is_added_to_the_upload_before_it_leaves() -> None:
    mechanism = Mechanism(PrivacyConfig(mode="local", noise=1.0), 1, lambda whose: KEY)
    down = {"b": torch.zeros(2), "a": torch.ones(1)}
    up = {"b": torch.zeros(2), "a": torch.ones(1)}
    sent = mechanism.noised("north", 1, up, down)
    noise = gaussian(
        2**48, 3, stream_of_release(KEY, "", 1, digest_of({"north": np.zeros(3, int)}))
    )
    assert list(sent) == ["b", "a"]
    expected = noise / ONE
    assert torch.equal(sent["a"], torch.tensor([1 + expected[0]], dtype=torch.float32))
    assert torch.equal(sent["b"], torch.tensor(expected[1:], dtype=torch.float32))


def test_tensors_to_which_no_noise_can_be_added_are_refused() -> None:
    whole = State({"batches": torch.zeros(1, dtype=torch.int64)})
    with pytest.raises(MethodError, match="holds whole numbers"):
        check_shared("fedavg", whole, [])
    with pytest.raises(MethodError, match="shares 200,001 numbers"):
        check_shared("fedavg", State({"w": torch.zeros(200_001)}), [])
    task = Task("run", "north", 1, 0, Payload())
    with pytest.raises(MethodError, match="does not send north its state"):
        check_shared("fedavg", State({"w": torch.zeros(1)}), [task])


def test_the_key_of_a_server_outlives_its_releases(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.state.mkdir()
    key = store.noise_key(released=False)
    assert store.noise_key(released=True) == key
    path = tmp_path / "state" / "noise.key"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"short")
    with pytest.raises(DamageError, match="5 bytes"):
        store.noise_key(released=True)
    path.unlink()
    with pytest.raises(DamageError, match=r"noise\.key is gone"):
        store.noise_key(released=True)


def test_what_a_run_will_cost_is_said_before_it_begins(caplog: pytest.LogCaptureFixture) -> None:
    hospitals = Prospect(PrivacyConfig(mode="central", noise=1.8981), 10, 3, 443)
    (line,) = hospitals.lines()
    assert "epsilon 8.00 at delta 1e-05" in line
    (warning,) = hospitals.warnings()
    assert "13.3 times as long" in warning
    assert "has epsilon 340" in warning
    assert "a few participants can have a secure sum, limits and an audit instead" in warning
    summed = PrivacyConfig(mode="distributed", secure_sum=True, noise=2.0, least=4)
    # On the sum of 12 there are 12 times 4 over 3: a standard deviation of 4, and 1/3 on the mean.
    assert Prospect(summed, 10, 12, 900).ratio == pytest.approx(4 / 12 * 30)
    many = Prospect(PrivacyConfig(mode="central", noise=4.0), 10, 100, 443)
    assert not list(many.warnings())
    Federation(noisy(train__rounds=1), out="run").run()
    assert "times as long as the largest change" in caplog.text


def test_releases_with_several_noises_add_up() -> None:
    config = PrivacyConfig(mode="central", noise=1.0, epsilon=20.0)
    digests = [digest_of({"a": np.array([number])}) for number in range(4)]
    releases = [
        Release(round=1, inputs=digests[0], clients=("a", "b"), z=1.0),
        Release(round=1, inputs=digests[0], clients=("a", "b"), z=1.0),  # the same once more
        Release(round=1, inputs=digests[1], clients=("a",), z=0.5),
    ]
    budget = Budget(config, releases)
    assert (budget.releases("a"), budget.releases("b"), budget.releases("c")) == (2, 1, 0)
    assert budget.epsilon("a") == pytest.approx(epsilon_of(5, 1.0, 1e-5))
    assert budget.epsilon_of_replacement("b") == epsilon_of(1, 0.5, 1e-5)
    assert budget.eligible("abc") == ["a", "b", "c"]
    tighter = config.model_copy(update={"epsilon": 12.0})
    assert Budget(tighter, releases).eligible("abc") == ["b", "c"]


def test_off_leaves_no_trace() -> None:
    run = Federation(noisy("off", privacy__noise=0.0, train__rounds=1), out="run").run()
    assert not Path("run/privacy.jsonl").exists()
    assert "privacy" not in run.summary
    assert "privacy" not in run.environment
    assert run.budget is None
