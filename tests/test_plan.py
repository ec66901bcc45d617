"""What a big run says before it begins."""

from pathlib import Path

import pytest

from pfedes import Config, Federation, Listener
from pfedes.api.spectator import Spectator
from pfedes.federation.estimate import Plan, is_big
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
        (small(train__rounds=400, train__epochs=10, train__participation=0.1), [400] * 10, False),
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
        measured="client-0042",
        client_seconds=1.25,
    )
    Spectator().planned(plan)
    said = capsys.readouterr().err
    assert "about 2:02 h with 2 workers, 1.9 GB of memory, up to 26 GB of disk" in said
    assert "estimated from client-0042: 1.2 s for one round" in said
    assert "warning: only 9 GB are free on that disk" in said
    assert max(map(len, said.splitlines())) <= 80


def test_the_papers_plan_knows_what_decompositions_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client that is asked decomposes its update, and the server their mean."""
    from pfedes.reproduction import estimate

    monkeypatch.setattr(estimate, "_sample_seconds", lambda *_: 0.0)
    monkeypatch.setattr(estimate, "_decomposing_seconds", lambda *_: 2.0)
    config = small("fedkd", partition__clients=4, train__participation=0.5)
    assert estimate.round_seconds(config) == (2 + 1) * 2.0
    dense = small("fedkd", partition__clients=4, method__compression=False)
    assert estimate.round_seconds(dense) == 0.0
