"""A late joiner: learns against a finished run's extractor, and sends nothing."""

from pathlib import Path

import pytest

from pfedes import Context, Federation, MethodError, PfedesError, Run, StoreError, open_run
from pfedes.adopt import adoption
from pfedes.cli import execute
from pfedes.participant import read_participant
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


def test_a_latecomer_learns_against_the_extractor_that_others_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Federation(small(), out=tmp_path / "run").run()
    words = ["adopt", "run", str(latecomer(tmp_path)), "--out", "late", "--rounds", "2", "--quiet"]
    assert execute(words) == 0, capsys.readouterr().err
    late = open_run("late")
    assert list(late.manifest.clients) == ["late"]
    assert late.summary["floats_up"] == late.summary["floats_down"] == 0
    assert late.summary["mean_accuracy"] > late.summary["initial_accuracy"] + 0.1
    theta = before.store.server_state(before.manifest).tensors
    kept = late.store.clients.load(late.manifest.run, "late", 2).state
    for name, tensor in theta.items():
        assert kept[f"kept.{name}"].equal(tensor)
    terms = late.config.federation
    assert terms.classes == before.simulation.population.class_names
    assert terms.mean == before.simulation.population.terms().mean


def test_how_the_others_were_combined_is_nothing_to_a_latecomer(tmp_path: Path) -> None:
    settings = {"aggregation__kind": "median", "train__min_uploads": 3, "train__rounds": 1}
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
