"""Digests outlive new keys, and runs outlive the moving of their data."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pfedes import Config, Federation, Participant, StoreError, cli, configure, open_run
from pfedes.config.earlier_digests import earlier_federation_digest
from pfedes.core.train_config import TrainConfig
from pfedes.data.partition import PartitionConfig
from running import small


class LaterPartition(PartitionConfig):
    """As a later version may have it."""

    drift: float = 0.0


class LaterTrain(TrainConfig):
    """The keys of `[train]` in a later version."""

    warm_up: int = 0


class LaterConfig(Config):
    """The configuration of a later version."""

    partition: LaterPartition = LaterPartition()
    train: LaterTrain = LaterTrain()


def later(config: Config, drift: float = 0.0, warm_up: int = 0) -> Config:
    return LaterConfig(
        participants=config.participants,
        partition=LaterPartition(**config.partition.model_dump(), drift=drift),
        train=LaterTrain(**config.train.model_dump(), warm_up=warm_up),
    )


def test_keys_that_are_new_change_no_digest_until_they_are_set() -> None:
    person = Participant(name="ada", model="tiny:dense", data="tiny:ada_images")
    now = configure(participants=[person], settings={"partition.alpha": 0.7, "train.lr": 0.5})
    assert later(now).federation_digest() == now.federation_digest()
    assert later(now).local_digest() == now.local_digest()
    assert later(now, drift=0.1).federation_digest() != now.federation_digest()
    assert later(now, drift=0.1).local_digest() != now.local_digest()
    assert later(now, warm_up=1).federation_digest() == now.federation_digest()
    assert later(now, warm_up=1).local_digest() != now.local_digest()


@pytest.mark.parametrize("method", ["pfedes", "fml"])
def test_digests_still_tell_configurations_apart(method: str) -> None:
    now = configure(method=method)
    for other in (configure(method=method, seed=1), configure(method=method, clients=7)):
        assert other.federation_digest() != now.federation_digest()
        assert other.local_digest() != now.local_digest()
    assert configure(method="fd").federation_digest() != now.federation_digest()
    shaping = configure(method=method, settings={"train.epochs": 7})
    assert shaping.federation_digest() == now.federation_digest()
    assert shaping.local_digest() != now.local_digest()
    assert configure(method=method, rounds=7).local_digest() == now.local_digest()


def test_it_makes_no_difference_where_data_and_code_lie() -> None:
    def people(place: str) -> Config:
        ada = Participant(
            name="ada", model=f"{place}/own.py:net", data=f"folder:{place}/images", state=place
        )
        ben = Participant(name="ben", model="cnn5", data=f"{place}/own.py:load")
        return configure(participants=[ada, ben])

    for here, there in (
        (configure(data_dir="here"), configure(data_dir="there")),
        (configure(data="folder:here"), configure(data="folder:there")),
        (people("/here"), people("/there")),
    ):
        assert here != there
        assert here.federation_digest() == there.federation_digest()
        assert here.local_digest() == there.local_digest()
    other = Participant(name="ada", model="/here/own.py:other", data="folder:/here")
    same = other.model_copy(update={"model": "/here/own.py:net"})
    one, two = (configure(participants=[person]) for person in (other, same))
    assert one.federation_digest() != two.federation_digest()


def images(place: Path, shade: int = 0) -> Path:
    rng = np.random.default_rng(shade)
    for number, label in enumerate(("cat", "dog")):
        (place / label).mkdir(parents=True)
        for index in range(20):
            pixels = rng.integers(0, 128, (16, 16, 3), np.uint8) + number * 100
            Image.fromarray(pixels.astype(np.uint8)).save(place / label / f"{index}.png")
    return place


@pytest.mark.parametrize("earlier", [False, True])
def test_a_run_continues_after_its_data_has_moved(
    earlier: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small(
        data__source=f"folder:{images(tmp_path / 'here')}",
        data__limit=0,
        partition__clients=2,
        partition__classes_per_client=2,
        train__rounds=1,
        models__pool=["cnn5"],
        runtime__report=False,
    )
    Federation(config, out="run").run()
    if earlier:
        about = json.loads(Path("run/environment.json").read_text())
        about["federation"] = earlier_federation_digest(config)
        Path("run/environment.json").write_text(json.dumps(about))
    there, other = tmp_path / "there", images(tmp_path / "other", 1)
    (tmp_path / "here").rename(there)
    picture = str(there / "cat" / "0.png")

    def execute(*words: str) -> str:
        code = cli.execute(list(words))
        said = capsys.readouterr()
        assert (code, "Traceback" in said.err) in ((0, False), (2, False)), said.err
        return said.err if code else said.out

    whose = ("run", "--client", "client-0000")
    # What a model needs of the data is stored with the run.
    assert json.loads(execute("predict", *whose, picture, "--json"))[0]["file"] == picture
    assert "other data" in execute("predict", *whose, picture, "--data-dir", str(other))
    found = execute("predict", *whose, picture, "--json", "--data-dir", str(there))
    assert json.loads(found)[0]["file"] == picture
    execute("export", *whose, "--out", "exported", "--data-dir", str(there))
    assert Path("exported/model.safetensors").is_file()
    assert "other data" in execute("resume", "run", "--rounds", "2", "--data-dir", str(other))
    assert "does not exist" in execute("resume", "run", "--rounds", "2")
    assert execute("resume", "run", "--rounds", "2", "--data-dir", str(there), "--quiet")
    # It is written down where the data lies by now.
    assert execute("resume", "run", "--rounds", "3", "--quiet").strip() == "run"
    assert open_run("run").manifest.round == 3
    assert json.loads(execute("predict", *whose, picture, "--json"))


def test_what_a_run_cannot_change_is_still_refused(tmp_path: Path) -> None:
    config = small(train__rounds=1, runtime__report=False)
    Federation(config, out="run").run()
    text = Path("run/config.toml").read_text()
    Path("run/config.toml").write_text(text.replace("seed = 0", "seed = 1"))
    with pytest.raises(StoreError, match="changed key that defines the run"):
        Federation.resume("run", rounds=2)
    with pytest.raises(StoreError, match="changed key that defines the run"):
        open_run("run").model("client-0000")
