"""What a big run says before it begins."""

from pathlib import Path
from typing import Any

import pytest

from pfedes import Config, Federation, Listener
from pfedes.api.spectator import Spectator
from pfedes.core.client import Client
from pfedes.core.context import Context
from pfedes.core.payload import Payload, State
from pfedes.federation.estimate import Plan, is_big
from pfedes.methods.base import Received, Upload
from pfedes.methods.standalone import Standalone
from pfedes.reproduction.estimate import START_UP, Estimator, samples_seen
from pfedes.sweep.cells import Cell
from running import result, small


class Planned(Listener):
    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def planned(self, plan: Plan) -> None:
        self.plans.append(plan)


@pytest.mark.parametrize(
    ("config", "sizes", "big"),
    [
        (Config(), [144] * 10, False),
        (Config(), [10] * 1000, True),
        (small(train__rounds=500, train__epochs=10), [400] * 10, True),
        (small(train__rounds=250, train__epochs=10, train__participation=0.1), [400] * 10, False),
    ],
)
def test_what_is_big(config: Config, sizes: list[int], big: bool) -> None:
    assert is_big(config, sizes) is big


def test_a_plan_changes_nothing_and_adds_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet, heard = Planned(), Planned()
    straight = Federation(small(), out=tmp_path / "straight", listener=quiet).run()
    monkeypatch.setattr("pfedes.federation.loop.is_big", lambda config, sizes: True)
    run = Federation(small(), out=tmp_path / "run", listener=heard).run()
    assert result(run) == result(straight)
    assert quiet.plans == []
    (plan,) = heard.plans
    assert (plan.clients, plan.workers) == (4, 1)
    assert plan.seconds > 2 * 4 * plan.client_seconds > 0  # two rounds of four, and evaluation
    versions = [path.stat().st_size for path in (tmp_path / "run").rglob("0000?.safetensors")]
    assert plan.disk >= sum(versions)
    assert plan.disk < 3 * sum(versions)


def test_a_plan_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(
        clients=10_000,
        workers=2,
        manner="2 workers",
        seconds=7322,
        memory=1_900_000_000,
        disk=26_000_000_000,
        free=9_000_000_000,
        measured=("client-0042", "client-0007"),
        client_seconds=1.25,
    )
    Spectator().planned(plan)
    said = capsys.readouterr().err
    assert "about 2:02 h with 2 workers, 1.9 GB of memory, up to 26 GB of disk" in said
    assert "estimated from client-0042, client-0007: 1.2 s for one round" in said
    assert "warning: only 9 GB are free on that disk" in said
    assert max(map(len, said.splitlines())) <= 80


class Clock:
    """Seconds that pass only when a client or the server works."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A client takes 2 s, and 10 ms for each sample in an epoch; the server takes 5 s a round."""
    clock = Clock()

    def client_round(self: Standalone, client: Client, download: Payload, ctx: Context) -> Upload:
        clock.now += 2 + 0.01 * len(client.train) * ctx.train.epochs
        return Upload(loss=0.0)

    def aggregate(self: Standalone, state: State, uploads: list[Received], ctx: Context) -> State:
        assert len({upload.card.name for upload in uploads}) == len(uploads) > 0
        clock.now += 5
        return state

    monkeypatch.setattr("pfedes.federation.estimate.time", clock)
    monkeypatch.setattr(Standalone, "client_round", client_round)
    monkeypatch.setattr(Standalone, "aggregate", aggregate)
    return clock


def cell(**settings: Any) -> Cell:
    alike = {"data__limit": 600, "partition__clients": 20, "train__batch_size": 4}
    config = small("standalone", **{**alike, "train__epochs": 8, **settings})
    return Cell("a cell", config, Path("nowhere"))


def test_the_papers_plan_trains_few_samples_and_extends_the_line(clock: Clock) -> None:
    """Of 600 images each of 20 clients trains on 24; 1 and 3 batches of 4 are tried."""
    planned = cell(train__participation=0.5, train__rounds=7)
    seconds = Estimator().seconds(planned)
    measured = clock.now
    client = 2 + 0.01 * 24 * 8
    assert seconds == pytest.approx(START_UP + 7 * (10 * client + 5))
    # Two models, each tried with 4, 4 and 12 samples in 2 epochs of the 8; and the server.
    assert measured == pytest.approx(2 * (3 * 2 + 0.01 * 2 * (4 + 4 + 12)) + 5)


def test_the_papers_plan_measures_each_kind_once(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    estimator = Estimator()
    one = cell()
    alike = [cell(seed=3), cell(train__rounds=9), cell(train__epochs=4), cell(data__limit=300)]
    estimator.measure([one, *alike])
    measured = clock.now
    expected = estimator.whole([one, *alike], jobs=2)
    assert expected.seconds == pytest.approx(sum(map(estimator.seconds, [one, *alike])) / 2)
    assert expected.cells == 5
    assert expected.all_states == 5 / 2 * expected.largest_state  # two of five at a time, all alike
    assert clock.now == measured  # nothing was trained for that
    scarce = {"partition__clients": 2, "partition__classes_per_client": 2}
    estimator.measure([cell(train__batch_size=8, **scarce)])
    assert clock.now > measured
    assert not caplog.records  # of classes that nobody has, the runs themselves will warn


def test_a_sweeps_bar_knows_the_cells_without_measuring(clock: Clock) -> None:
    assert samples_seen(cell(train__participation=0.5).config) == 300 * 8
    phases = small(data__limit=600, train__epochs=2, method__extractor_epochs=3)
    assert samples_seen(phases) == 600 * (2 + 3)
    assert clock.now == 0
