"""Rehearsals with a configuration: its participants, their files and terms, who cannot be had."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from commands import command, process, refused
from pfedes import Config, ConfigError, Federation, ModelError, Participant, open_run
from pfedes.config.participant import read_participant
from pfedes.deploy.filter_rules import allowed_by
from pfedes.deploy.rehearsal import NAMES, Rehearsal, terms_of, write_file
from pfedes.methods import METHODS
from ward import SITES, ward

STUDY = """
[partition]
kind = "natural"
[table]
label = "state"
site = "site"
numbers = ["temperature", "pulse"]
[models]
table = ["ward_networks.py:small"]
"""


def test_every_site_gets_the_file_that_it_would_write(tmp_path: Path) -> None:
    config = ward(tmp_path / "ward")
    for person in config.participants:
        write_file(tmp_path / person.name, person, "pfedes")
    found = [read_participant(tmp_path / name / "participant.toml") for name in SITES]
    assert [person.state for person in found] == [str(tmp_path / n / "state") for n in SITES]
    assert {person.methods for person in found} == {("pfedes",)}
    same = {"state": "", "methods": config.participants[0].methods}
    assert [person.model_copy(update=same) for person in found] == list(config.participants)


def test_states_and_keys_of_a_real_federation_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    peers = {"ben": f"sha256:{'0' * 64}"}
    person = Participant(name="ada", model="m:f", data="m:d", state="/real", peers=peers)
    write_file(tmp_path / "ada", person, "fedavg")
    found = read_participant(tmp_path / "ada" / "participant.toml")
    assert found.state == str(tmp_path / "ada" / "state")
    assert not found.peers
    assert found.methods == ("pfedes",)  # and it says no to the other


def test_the_terms_are_those_of_the_simulation(tmp_path: Path) -> None:
    config = ward(tmp_path / "ward", federation__host="fl.example.org", federation__port=8002)
    terms = terms_of(config)
    assert not terms.participants
    assert terms.federation.participants == SITES
    assert terms.federation.host == "localhost"
    assert terms.federation.port != 8002
    assert terms.asked_digest() == config.asked_digest()
    for person in config.participants:  # as `pfedes join` checks it
        alone = terms.model_copy(update={"participants": (person,)})
        assert alone.train == config.train


def test_sites_tell_the_measures_that_a_configuration_asks_for(tmp_path: Path) -> None:
    """Nobody could write that into their files: they have none yet."""
    config = ward(tmp_path / "ward", federation__measures=True, train__rounds=1)
    run = Federation(config, out=tmp_path / "run").run()
    assert run.trained
    write_file(tmp_path / "east", config.participants[0], "pfedes")
    assert "measures" in read_participant(tmp_path / "east" / "participant.toml").share


def test_consent_to_a_method_that_is_for_pictures_changes_nothing(tmp_path: Path) -> None:
    """Its shared network is no network for rows; a hospital may agree to it nevertheless."""
    config = ward(tmp_path / "ward")
    person, terms = config.participants[0], terms_of(config)
    chosen = [
        allowed_by(person.model_copy(update={"methods": methods}), terms)
        for methods in (("pfedes", "fml"), ("pfedes",))
    ]
    assert chosen[0] == chosen[1]
    asked = terms.model_copy(update={"method": METHODS["fml"].Config(name="fml")})
    with pytest.raises(ModelError, match="a CNN is for images"):
        allowed_by(person, asked)


def people(*names: str) -> Config:
    found = tuple(Participant(name=name, model="m:f", data="m:d") for name in names)
    return Config(participants=found)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "needs participants who bring their own data: set partition.kind = 'natural'"),
        ((*NAMES, "zoe"), "a rehearsal takes at most 20 participants.*found 21"),
        (("ada", "federation"), "'federation' cannot be a participant's name"),
        (("ada", "a.b"), "'a.b' cannot be a participant's name"),
    ],
)
def test_participants_that_cannot_be_rehearsed_with(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        terms_of(people(*names))


@pytest.mark.parametrize(
    ("arguments", "rounds"),
    [((), 3), (("--rounds", "5"), 5), (("--set", "train.rounds=4"), 4)],
)
def test_on_the_command_line(
    arguments: tuple[str, ...], rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward(tmp_path / "ward")
    (tmp_path / "ward" / "study.toml").write_text(STUDY)
    asked: list[Any] = []

    def rehearsed(*about: Any) -> Rehearsal:
        asked.extend(about)
        return Rehearsal(MagicMock(directory=tmp_path), [], [])

    monkeypatch.setattr("pfedes.cli.rehearse.rehearse_with", rehearsed)
    study, data = str(tmp_path / "ward" / "study.toml"), f"csv:{tmp_path / 'ward' / 'ward.csv'}"
    done = command("rehearse", study, "--data", data, *arguments, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    place, config, _ = asked
    assert place == tmp_path / "out"
    assert [person.name for person in config.participants] == list(SITES)
    assert config.train.rounds == rounds
    line = refused("rehearse", study, "--data", data, "--participants", "2")
    assert "--participants is not for a configuration, which names its participants" in line


def test_nothing_is_made_without_participants(tmp_path: Path) -> None:
    assert "needs participants who bring their own data" in refused("rehearse", "--data", "digits")


@pytest.mark.repeat
def test_a_rehearsal_of_the_ward_is_its_simulation(tmp_path: Path) -> None:
    """A server and two participants in processes of their own take the time."""
    config = ward(tmp_path / "ward")
    (tmp_path / "ward.toml").write_text(config.to_toml())
    out = tmp_path / "rehearsal"
    done = process("rehearse", str(tmp_path / "ward.toml"), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "predicts one class only, 'well'" in done.stdout
    run = open_run(out / "federation" / "run")
    alone = Federation(config, out=tmp_path / "run").run()
    assert run.summary["rounds"] == alone.summary["rounds"] == 3
    assert run.summary["accuracies"] == alone.summary["accuracies"]
    assert list(run.manifest.clients) == list(SITES)
