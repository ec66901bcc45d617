"""Participants with models and data of their own: four of them, from code outside the package."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from commands import command
from people import OWN, PEOPLE, QUICK, federation
from pfedes import ConfigError, Federation, configure, open_run
from pfedes.config.limits import Limits
from pfedes.config.participant import Participant, read_participant
from pfedes.core.payload import Payload
from pfedes.core.protocol import Failure, Task
from pfedes.errors import MethodError, WireError
from pfedes.fleet.client_host import host_of
from pfedes.methods.pfedes import PFedESConfig
from pfedes.models.head import head_of
from pfedes.population.consent import Consent
from pfedes.population.simulation import Simulation
from running import result


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("own") / "run"
    Federation(federation(), out=place).run()
    return place


def test_four_models_learn_together(trained: Path) -> None:
    run = open_run(trained)
    assert sorted(run.manifest.clients) == list(PEOPLE)
    assert run.summary["mean_accuracy"] > run.summary["initial_accuracy"] + 0.1
    assert {row["floats_up"] for row in run.clients} == {443}
    kinds = {type(run.model(name)).__name__ for name in PEOPLE}
    assert kinds == {"Sequential", "Transformer"}
    shapes = {card.name: card.shape for card in run.store.cards(run.manifest)}
    assert shapes == {
        "ada": (3, 8, 8),
        "ben": (3, 16, 16),
        "cleo": (3, 16, 16),
        "dan": (3, 8, 8),
    }


def test_the_runs_own_configuration_repeats_it(trained: Path, tmp_path: Path) -> None:
    # From another directory, and without the files that named the participants.
    again = Federation(configure(trained / "config.toml"), out=tmp_path / "again").run()
    assert result(again) == result(open_run(trained))


def test_workers_give_the_same_bits_and_a_resume_too(trained: Path, tmp_path: Path) -> None:
    """Two worker processes import torch and the participants' code: that takes the time."""
    config = federation(runtime__fleet="workers", runtime__workers=2, train__rounds=1)
    Federation(config, out=tmp_path / "run").run()
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace('fleet = "workers"', 'fleet = "serial"'))
    longer = Federation.resume(tmp_path / "run", rounds=2).run()
    assert result(longer)["standings"] == result(open_run(trained))["standings"]


def test_the_command_line_takes_them_one_by_one(tmp_path: Path) -> None:
    files = [word for name in PEOPLE for word in ("--participant", str(OWN / f"{name}.toml"))]
    (tmp_path / "terms.toml").write_text(
        (OWN / "federation.toml").read_text().split("\n", 2)[2]  # without its participants
    )
    words = ["run", "terms.toml", *files, "--out", "r", "--rounds", "1", "--json"]
    done = command(*words, "--set", "train.epochs=1", "--set", "runtime.fleet=serial")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["dataset"] == "their own data"
    report = (tmp_path / "r" / "report.html").read_text()
    for name in PEOPLE:
        assert name in report
    done = command("resume", "r", "--rounds", "2", "--quiet")
    assert done.returncode == 0, done.stderr
    assert open_run("r").manifest.round == 2


def test_participants_in_python(tmp_path: Path) -> None:
    people = [read_participant(OWN / f"{name}.toml") for name in ("ada", "dan")]
    config = configure(participants=people, settings={**QUICK, "train.rounds": 1})
    with pytest.raises(ConfigError, match=r"federation\.classes must name the classes"):
        Federation(config, out=tmp_path / "no").run()
    classes = federation().federation.classes
    config = configure(participants=people, settings={**QUICK, "federation.classes": list(classes)})
    run = Federation(config, out=tmp_path / "run").run()
    assert sorted(run.manifest.clients) == ["ada", "dan"]


def test_heads_are_found_by_trying(tmp_path: Path) -> None:
    population = Simulation(federation()).population
    widths = {name: head_of(population.client(name).model).in_features for name in PEOPLE}
    assert widths == {"ada": 32, "ben": 32, "cleo": 64, "dan": 128}


def test_labels_by_name_and_by_number_mean_the_same_classes() -> None:
    population = Simulation(federation()).population
    for name in PEOPLE:
        labels = population.labels(name)
        assert sum(map(len, labels.values())) in (449, 450)
        assert set(labels["train"].tolist()) == set(range(10))


def test_relative_names_and_two_of_one_name(tmp_path: Path) -> None:
    shutil.copytree(OWN, tmp_path / "own")
    person = read_participant(Path("own/ada.toml"))
    assert person.model == f"{tmp_path}/own/models.py:mlp"
    with pytest.raises(ConfigError, match="two participants have the same name"):
        Simulation(configure(OWN / "federation.toml", participants=[person]))


def test_wrong_files_get_one_line(tmp_path: Path) -> None:
    for text, what in (
        ("name = 'x'\nmodel = 'cnn1'", "data is missing"),
        ("name = '/x'\nmodel = 'cnn1'\ndata = 'digits'", "name"),
        ("name = 'x'\nmodel = 'cnn1'\ndata = 'digits'\nmodle = 1", "did you mean 'model'"),
        ("name = 'x'\nmodel = 'cnn1'\ndata = 'digits'\nmethods = ['pfedse']", "'pfedes'"),
        ("name = ", "is not TOML"),
    ):
        (tmp_path / "p.toml").write_text(text)
        done = command("run", "--participant", "p.toml", "--out", "o")
        assert done.returncode == 2
        assert what in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "o").exists()


def test_an_unknown_home_directory_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "ada.toml"
    place.write_text('name = "ada"\nmodel = "cnn5"\ndata = "folder:~no-such-user/pets"\n')
    with pytest.raises(ConfigError, match="cannot expand '~no-such-user/pets': no such user"):
        read_participant(place)
    homeless: list[dict[str, Any]] = [
        {"data": "folder:~no-such-user"},
        {"data_dir": "~no-such-user"},
    ]
    for settings in homeless:
        with pytest.raises(ConfigError, match="cannot expand '~no-such-user': no such user"):
            configure(**settings)


def test_a_method_without_consent_gets_nothing(tmp_path: Path) -> None:
    for settings, what in (
        ({"method.name": "fedavg"}, "no consent to method 'fedavg'"),
        ({"method.width": 16}, "no consent to what 'pfedes' would send with width = 16"),
    ):
        config = configure(OWN / "federation.toml", settings={**QUICK, **settings})
        with pytest.raises(MethodError, match=what):
            Federation(config, out=tmp_path / "o").run()
        assert not (tmp_path / "o").exists()


def test_a_coordinator_that_switches_later_gets_nothing_either(tmp_path: Path) -> None:
    simulation = Simulation(federation(method__width=16))
    host = host_of(simulation, None)  # type: ignore[arg-type]  # nothing is stored before a refusal
    download = simulation.method.download(
        simulation.method.start(host.cards(), simulation.context(0)),
        host.cards()[0],
        simulation.context(1),
    )
    answer = host.answer(Task("run", "ada", 1, 0, download))
    assert isinstance(answer, Failure)
    assert "no consent to what 'pfedes' would send with width = 16" in answer.reason


def test_limits() -> None:
    simulation = Simulation(federation(train__epochs=3))
    card = simulation.population.card("ada", [])
    ctx = simulation.context(1)
    strict = Consent(("pfedes",), {}, Limits(epochs=2, floats=400))
    assert list(strict.refusals(simulation.method, card, ctx)) == [
        "epochs = 3, limits.epochs allows at most 2"
    ]
    with pytest.raises(WireError, match=r"443 floats would leave, limits\.floats allows 400"):
        strict.check_amount(Payload(simulation.method.start([card], ctx).tensors))
    just = Consent(("pfedes",), {}, Limits(floats=443))
    just.check_amount(Payload(simulation.method.start([card], ctx).tensors))
    wide = Consent(("pfedes",), {"width": 16}, Limits())
    asked = Simulation(federation(method__width=16)).method
    assert list(wide.refusals(asked, card, ctx)) == []


def test_only_epochs_at_the_client_count() -> None:
    """A key that ends in `epochs` may be the server's own work."""
    simulation = Simulation(federation(train__epochs=2))

    class Config(PFedESConfig):
        server_epochs: int = 50

    method = type(simulation.method)(Config(extractor_epochs=2))
    card, ctx = simulation.population.card("ada", []), simulation.context(1)
    strict = Consent(("pfedes",), {}, Limits(epochs=2))
    assert list(strict.refusals(method, card, ctx)) == []
    more = type(simulation.method)(Config(extractor_epochs=3))
    assert list(strict.refusals(more, card, ctx)) == ["epochs = 3, limits.epochs allows at most 2"]


def test_a_participant_is_a_value() -> None:
    one = Participant(name="x", model="cnn1", data="digits")
    assert one == Participant(name="x", model="cnn1", data="digits")
    assert one.methods == ("pfedes",)


def test_tables_have_extractors_too(tmp_path: Path) -> None:
    place = OWN.parent / "tables" / "federation.toml"
    config = configure(place, settings={"train.rounds": 2, "runtime.fleet": "serial"})
    run = Federation(config, out=tmp_path / "run").run()
    assert run.summary["mean_accuracy"] > 0.9
    assert {row["floats_up"] for row in run.clients} == {2 * 30 * 8 + 8 + 30}
    assert {card.shape for card in run.store.cards(run.manifest)} == {(30,)}
    assert "Enhanced images" not in (tmp_path / "run" / "report.html").read_text()
