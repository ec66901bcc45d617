"""A late joiner: learns against a finished run's extractor, and sends nothing."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pfedes import (
    Context,
    Federation,
    Listener,
    MethodError,
    PfedesError,
    Run,
    StoreError,
    open_run,
)
from pfedes.cli import execute
from pfedes.config.participant import read_participant
from pfedes.federation.adopt import adoption
from running import small

OWN = Path(__file__).parents[1] / "examples" / "own"


def context(run: Run) -> Context:
    return run.simulation.context(0)


def latecomer(tmp_path: Path) -> Path:
    place = tmp_path / "late.toml"
    classes = [str(digit) for digit in range(10)]
    place.write_text(
        f"name = 'late'\nmodel = '{OWN}/models.py:cnn'\ndata = '{OWN}/data.py:pairs'\n"
        f"classes = {classes}\n"
    )
    return place


def test_adopt_trains_with_the_extractor_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Federation(small(), out=tmp_path / "run").run()
    words = ["adopt", "run", str(latecomer(tmp_path)), "--out", "late", "--rounds", "2", "--quiet"]
    assert execute(words) == 0, capsys.readouterr().err
    late = open_run("late")
    assert list(late.manifest.clients) == ["late"]
    assert late.summary["floats_up"] == 0
    assert late.summary["floats_down"] == 443  # the extractor, once
    assert late.summary["mean_accuracy"] > late.summary["initial_accuracy"] + 0.1
    theta = before.store.server_state(before.manifest).tensors
    kept = late.store.clients.load(late.manifest.run, "late", 2).state
    for name, tensor in theta.items():
        assert kept[f"kept.{name}"].equal(tensor)
    terms = late.config.federation
    assert terms.classes == before.simulation.population.class_names
    assert terms.mean == before.simulation.population.terms().mean


def test_adopt_ignores_the_aggregation_of_the_run(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "aggregation__kind": "median",
        "train__min_uploads": 3,
        "train__rounds": 1,
    }
    run = Federation(small(**settings), out=tmp_path / "run").run()
    config = adoption(run, read_participant(latecomer(tmp_path)), 1)
    assert Federation(config, out=tmp_path / "late").run().rounds[0]["status"] == "ok"


def test_what_cannot_be_adopted_gets_one_line(tmp_path: Path) -> None:
    person = read_participant(latecomer(tmp_path))
    run = Federation(small("standalone"), out=tmp_path / "alone").run()
    with pytest.raises(MethodError, match="shares no extractor"):
        adoption(run, person)
    environment = run.directory / "environment.json"
    environment.write_text(environment.read_text().replace('"data": "', '"data": "0'))
    with pytest.raises(StoreError, match="was trained on other data"):
        adoption(open_run(run.directory), person)


@pytest.mark.parametrize("sharing", ["frozen", "local"])
def test_only_the_owner_of_a_configuration_reads_its_first_extractor(
    sharing: str, tmp_path: Path
) -> None:
    """Clients may train on machines that lack the file: they are sent what is in it, once."""
    run = Federation(small(), out=tmp_path / "run").run()
    place, trained = tmp_path / "first.safetensors", run.store.server_state(run.manifest).tensors
    shutil.copy(run.store.state / run.manifest.server, place)

    class Removes(Listener):
        def round_started(self, round: int, clients: Sequence[str]) -> None:
            place.unlink(missing_ok=True)

    config = small(method__start_from=str(place), method__sharing=sharing)
    later = Federation(config, out=tmp_path / "later", listener=Removes()).run()
    assert [row["failed"] for row in later.rounds] == [0, 0]
    first, second = (row["floats_down"] for row in later.rounds)
    assert (first, second) == (sum(t.numel() for t in trained.values()) * 4, 0)
    state = later.store.clients.load(later.manifest.run, "client-0000", 2).state
    unchanged = all(state[f"kept.{name}"].equal(tensor) for name, tensor in trained.items())
    assert unchanged is (sharing == "frozen")


def test_an_extractor_to_start_from(tmp_path: Path) -> None:
    run = Federation(small(), out=tmp_path / "run").run()
    place = run.store.state / run.manifest.server
    warm = Federation(small(method__start_from=str(place)), out=tmp_path / "warm").run()
    first = warm.simulation.method.start(warm.simulation.population.cards([]), context(warm))
    trained = run.store.server_state(run.manifest).tensors
    assert first.tensors.keys() == trained.keys()
    assert all(first.tensors[name].equal(tensor) for name, tensor in trained.items())
    for other, what in (("none", "cannot be read"), (place, "holds no extractor for images")):
        config = small(method__start_from=str(other), method__width=9)
        with pytest.raises(PfedesError, match=what):
            Federation(config, out=tmp_path / "no").run()
        assert not (tmp_path / "no").exists()
