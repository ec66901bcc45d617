"""The configuration: complete, explained, and strict."""

import tomllib
from pathlib import Path

import pytest

from pfedes import Config, ConfigError, PFedES, configure
from pfedes.config import parse_setting, validate
from pfedes.methods import METHODS
from pfedes.methods.pfedes import PFedESConfig
from running import hyper_parameters


@pytest.mark.parametrize("method", METHODS)
def test_toml_there_and_back(method: str, tmp_path: Path) -> None:
    config = configure(method=method, clients=7, settings={"train.lr": 0.5, "seed": 3})
    path = tmp_path / "c.toml"
    for text in (config.to_toml(), config.to_commented_toml()):
        path.write_text(text)
        assert configure(path) == config


def test_every_key_is_explained() -> None:
    for line in configure().to_commented_toml().splitlines():
        if "=" in line and not line.startswith("name ="):
            assert "  # " in line


def test_settings_win_over_options_and_options_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("seed = 1\n[train]\nrounds = 2\nlr = 0.5\n[partition]\nclients = 3\n")
    config = configure(path, rounds=5, clients=6, settings={"partition.clients": 9})
    assert (config.seed, config.train.rounds, config.train.lr) == (1, 5, 0.5)
    assert config.partition.clients == 9


def test_keys_of_another_method_are_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[method]\nname = "pfedes"\nmu = 0.4\n')
    assert hyper_parameters(configure(path), PFedESConfig).mu == 0.4
    assert hyper_parameters(configure(path, method="pfedes"), PFedESConfig).mu == 0.4
    assert not caplog.records
    assert configure(path, method="standalone").method.name == "standalone"
    assert "[method] mu" in caplog.text
    assert hyper_parameters(configure(method=PFedES(mu=0.3)), PFedESConfig).mu == 0.3


def test_a_data_directory_becomes_absolute(tmp_path: Path) -> None:
    assert configure(data_dir="here").data.dir == str(tmp_path / "here")
    assert configure().data.dir == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=3", ("a.b", 3)),
        ("a.b=0.5", ("a.b", 0.5)),
        ("a.b=[1, 2]", ("a.b", [1, 2])),
        ("a.b=true", ("a.b", True)),
        ("a.b=word", ("a.b", "word")),
        ('a.b="3"', ("a.b", "3")),
        ("a=b=c", ("a", "b=c")),
    ],
)
def test_settings_are_toml_if_they_parse(text: str, expected: object) -> None:
    assert parse_setting(text) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train.epoch": 3}, "unknown key 'train.epoch'; did you mean 'train.epochs'"),
        ({"trian.epochs": 3}, "unknown key 'trian'; did you mean 'train'"),
        ({"method.mue": 0.1}, "unknown key 'method.mue'; did you mean 'method.mu'"),
        ({"method.mu": 0.0}, "method.mu = 0.0: input should be greater than 0"),
        ({"method.mu": 0.6}, "method.mu = 0.6: input should be less than or equal to 0.5"),
        ({"method.name": "pfeds"}, "unknown method 'pfeds'; did you mean 'pfedes'"),
        ({"train.participation": 0}, "train.participation = 0"),
        ({"train.participation": 1.5}, "train.participation = 1.5"),
        ({"train.participation": float("nan")}, "finite number"),
        ({"train.rounds": "many"}, "train.rounds = 'many'"),
        ({"train": 3}, "train = 3"),
        ({"train.lr.x": 3}, "train.lr"),
        ({"models.pool": ["cnn1", "cnn9"]}, "unknown model 'cnn9'; did you mean"),
        ({"models.pool": []}, "models.pool = "),
        ({"models.pool": "resnet18"}, 'a list such as ["cnn1", "cnn5"]; known: cnn1, cnn2, cnn3'),
        (
            {"evaluate.targets": "0.9"},
            "evaluate.targets = '0.9': expected a list such as [\"0.9\"]",
        ),
        ({"partition.kind": "random"}, "'classes', 'dirichlet', 'iid' or 'natural'"),
        ({"evaluate.targets": [0.5, 2.0]}, "evaluate.targets.1 = 2.0"),
        ({"seed": -1}, "seed = -1"),
        ({"data.dir": 3}, "data.dir = 3: input should be a valid string"),
        ({"preset": "released", "models.pool": 3}, "models.pool = 3"),
        (
            {"runtime.workers": 0},
            "runtime.workers = 0: input should be greater than or equal to 1, or input should be",
        ),
        ({"partition.split": [0.5, 0.5]}, "partition.split"),
        ({"compare.fmll.alpha": 1}, "unknown method 'fmll'; did you mean 'fml'"),
        ({"method.name": "fml", "method.shared_model": "cnn9"}, "unknown model 'cnn9'"),
    ],
)
def test_mistakes_are_explained(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        configure(settings=settings)
    assert message in str(error.value)
    assert "constrained-" not in str(error.value)
    assert "literal[" not in str(error.value)


def test_a_method_that_is_no_section(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("method = 3\n")
    with pytest.raises(ConfigError, match="expected a section"):
        configure(tmp_path / "c.toml", method="fml")


def test_a_folder_becomes_absolute(tmp_path: Path) -> None:
    assert configure(data="folder:pets").data.source == f"folder:{tmp_path / 'pets'}"


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        configure(settings={"method.mu": 9, "train.lr": -1, "nonsense": 1})
    assert str(error.value).count(";") >= 2


@pytest.mark.parametrize("text", ["seed = ", "[train", "\x00", "= 3"])
def test_what_is_not_toml(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is not TOML"):
        configure(path)
    with pytest.raises(ConfigError, match="cannot read"):
        configure(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match=r"takes section\.key=value"):
        parse_setting("nothing")


def test_a_configuration_is_a_value() -> None:
    assert validate(tomllib.loads(configure().to_toml())) == Config()
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 3  # type: ignore[misc]  # what is tried: to change it


def test_the_released_preset(tmp_path: Path) -> None:
    config = configure(settings={"preset": "released"})
    assert (config.train.epochs, config.train.batch_size, config.train.augment) == (10, 512, True)
    assert (config.models.assign, config.models.init) == ("round_robin", "shared")
    assert (config.partition.split, config.partition.rule) == ("official", "floor")
    method = hyper_parameters(config, PFedESConfig)
    assert (method.mu, method.extractor_epochs) == (0.5, 20)
    homogeneous = configure(settings={"preset": "released", "models.pool": ["cnn1"]})
    assert hyper_parameters(homogeneous, PFedESConfig).extractor_epochs == 10
    mine = configure(settings={"preset": "released", "train.epochs": 3, "method.mu": 0.2})
    assert (mine.train.epochs, mine.train.batch_size) == (3, 512)
    assert hyper_parameters(mine, PFedESConfig).mu == 0.2
    other = configure(method="fml", settings={"preset": "released"})
    assert (other.method.name, other.train.epochs) == ("fml", 10)
    (tmp_path / "c.toml").write_text(mine.to_toml())
    assert configure(tmp_path / "c.toml") == mine
    with pytest.raises(ConfigError, match="preset = 'published'"):
        configure(settings={"preset": "published"})


def test_a_custom_method_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_own.py").write_text("class :")
    (tmp_path / "raising_own.py").write_text("raise RuntimeError('not today')")
    (tmp_path / "mine_own.py").write_text("class NoMethod: pass\nvalue = 3\n")
    with pytest.raises(ConfigError, match="No module named 'mine_own'"):
        configure(method="mine_own:NoMethod")  # lying in the present directory is not enough
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, message in [
        (
            "nowhere_at_all:X",
            "cannot be imported: No module named 'nowhere_at_all'; install it, or name its "
            "directory in PYTHONPATH",
        ),
        (
            "pfedes:Standalone",
            "its StandaloneConfig allows no name but 'standalone'; declare "
            "'name: str = \"pfedes:Standalone\"' there",
        ),
        ("mine_own:Y", "cannot be imported: module 'mine_own' has no attribute 'Y'"),
        ("mine_own:NoMethod", "is not a subclass of pfedes.Method"),
        ("mine_own:value", "is not a subclass of pfedes.Method"),
        ("pfedes:Method", "is not a subclass of pfedes.Method with a Config"),
        ("broken_own:X", "cannot be imported: invalid syntax"),
        ("raising_own:X", "cannot be imported: not today"),
    ]:
        with pytest.raises(ConfigError) as error:
            configure(method=name)
        assert message in str(error.value)
