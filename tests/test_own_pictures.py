"""Pictures of participants: channels, names of folders, files of MedMNIST's form, orientation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from commands import command
from exported import elsewhere
from pfedes import ConfigError, DataError, Federation, configure
from pfedes.config.federation import FederationConfig
from pfedes.config.participant import Participant, participant_from
from pfedes.data import sources
from pfedes.data.readers.images import open_picture
from pfedes.data.sources import DataConfig
from pfedes.export.model_files import export_model
from pfedes.population.own_data import OwnData, class_names_of, own_data

TERMS = FederationConfig(classes=("ill", "well"), channels=1)


def scans(place: Path, names: tuple[str, ...] = ("ILL", "WELL"), mode: str = "L") -> Path:
    """A folder for each name, with pictures of its own brightness."""
    for number, name in enumerate(names):
        (place / name).mkdir(parents=True)
        for row in range(20):
            pixels = np.full((16, 16), 100 * number + row, np.uint8)
            Image.fromarray(pixels).convert(mode).save(place / name / f"{row}.png")
    return place


def read(data: str, terms: FederationConfig = TERMS, **keys: Any) -> OwnData:
    person = Participant(name="ada", model="cnn5", data=data, **keys)
    return own_data(person, terms, np.random.default_rng(0))


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_pictures_have_the_channels_of_the_federation(mode: str, tmp_path: Path) -> None:
    place = scans(tmp_path / "scans", ("ill", "well"), mode)
    assert read(f"folder:{place}").shape == (1, 16, 16)
    three = TERMS.model_copy(update={"channels": 3})
    assert read(f"folder:{place}", three).shape == (3, 16, 16)
    grey = sources.load(DataConfig(source=f"folder:{place}", channels=1))
    assert grey.images.shape == (40, 16, 16, 1)


def test_folders_may_have_other_names_than_classes(tmp_path: Path) -> None:
    place, names = scans(tmp_path / "scans"), {"ILL": "ill", "WELL": "well"}
    found = read(f"folder:{place}", labels=names)
    for split in (found.train, found.val, found.test):
        assert np.array_equal(split.labels, split.inputs[:, 0, 0, 0] >= 100)  # the brighter: well
    with pytest.raises(DataError, match=r"unknown class 'ILL'.*\[labels\] of the participant file"):
        read(f"folder:{place}")
    person = Participant(name="a", model="cnn5", data=f"folder:{place}", labels=names)
    assert class_names_of(person) == ("ill", "well")


def test_several_names_may_be_one_class(tmp_path: Path) -> None:
    place = scans(tmp_path / "scans", ("flu", "pox", "well"))
    found = read(f"folder:{place}", labels={"flu": "ill", "pox": "ill"})
    labels = np.concatenate([found.train.labels, found.val.labels, found.test.labels])
    assert np.bincount(labels).tolist() == [40, 20]


def test_words_of_a_table_have_other_names_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("state,age\n" + "krank,1\ngesund,2\n" * 20)
    table = {"label": "state", "numbers": ["age"], "mean": {"age": 0.0}, "std": {"age": 1.0}}
    words = {"krank": "ill", "gesund": "well"}
    person = participant_from(
        {"name": "ada", "model": "m.py:f", "data": "csv:t.csv", "table": table, "labels": words},
        tmp_path,
        "ada.toml",
    )
    found = own_data(person, TERMS, np.random.default_rng(0)).train
    assert np.array_equal(found.labels, found.inputs[:, 0] == 2)


def medmnist(path: Path, **changes: Any) -> Path:
    """A file of that form, 28 by 28; each picture is as bright as its label says."""
    arrays: dict[str, Any] = {}
    for split, count in (("train", 40), ("val", 8), ("test", 8)):
        labels = np.arange(count)[:, None] % 2
        arrays[f"{split}_labels"] = labels.astype(np.uint8)
        arrays[f"{split}_images"] = np.full((count, 28, 28), 200) * labels[..., None]
        arrays[f"{split}_images"] = arrays[f"{split}_images"].astype(np.uint8)
    for name, array in changes.items():
        if array is None:
            del arrays[name]
        else:
            arrays[name] = array
    np.savez(path, **arrays)
    return path


def test_a_file_of_medmnist(tmp_path: Path) -> None:
    path = medmnist(tmp_path / "mnist.npz")
    found = read(f"npz:{path}")
    assert [len(split) for split in (found.train, found.val, found.test)] == [40, 8, 8]
    assert found.shape == (1, 28, 28)
    assert np.array_equal(found.test.labels, found.test.inputs[:, 0, 0, 0] > 0)
    swapped = read(f"npz:{path}", classes=("well", "ill"))
    assert np.array_equal(swapped.test.labels, 1 - found.test.labels)
    whole = sources.load(DataConfig(source=f"npz:{path}", channels=1))
    assert (whole.official_train, len(whole), whole.class_names) == (48, 56, ("0", "1"))
    assert sources.load(DataConfig(source=f"npz:{path}")).images.shape[-1] == 3
    no_val = medmnist(tmp_path / "two.npz", val_images=None, val_labels=None)
    assert len(read(f"npz:{no_val}").val) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_labels": None}, "has no array 'test_labels'"),
        ({"train_images": np.zeros((40, 28, 28))}, "train images are float64"),
        ({"test_labels": np.zeros((8, 3), np.uint8)}, r"test labels are uint8 of shape \[8, 3\]"),
        ({"val_labels": np.zeros(7, np.uint8)}, "val has 8 images, but 7 labels"),
        ({"test_labels": np.array([{}] * 8)}, "is not an .npz file of arrays"),
    ],
)
def test_unusable_files_of_arrays_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """The last one would have to be unpickled."""
    path = medmnist(tmp_path / "x.npz", **changes)
    with pytest.raises(DataError, match=message):
        read(f"npz:{path}")


def test_an_archive_that_is_damaged_anywhere_is_one_line(tmp_path: Path) -> None:
    """Besides numpy, what unpacks it has kinds of errors of its own."""
    path = tmp_path / "x.npz"
    np.savez_compressed(path, train_images=np.arange(999) % 251)
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 15]) + whole[place + 1 :])
        with pytest.raises(DataError):  # an array is missing at least
            read(f"npz:{path}")


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match=r"is not an .npz file|cannot be read"):
        read(f"npz:{tmp_path / 'x.npz'}")
    with pytest.raises(DataError, match="cannot be read"):
        read(f"npz:{tmp_path / 'none.npz'}")


def turned(path: Path) -> Path:
    """A picture whose left half is dark, stored lying on its side, with a note that says so."""
    upright = np.zeros((16, 16), np.uint8)
    upright[:, 8:] = 255
    note = Image.Exif()
    note[0x0112] = 6  # to be turned right by 90 degrees
    Image.fromarray(np.rot90(upright)).save(path, exif=note)
    return path


def test_pictures_are_rotated_as_their_exif_data_says(tmp_path: Path) -> None:
    pixels = open_picture(turned(tmp_path / "x.png"), 0, 1)[..., 0]
    assert pixels[:, :8].max() == 0
    assert pixels[:, 8:].min() == 255


def test_exported_models_turn_pictures_alike(tmp_path: Path) -> None:
    place = scans(tmp_path / "scans", ("ill", "well"))
    config = configure(
        data=f"folder:{place}",
        clients=1,
        rounds=1,
        settings={
            "data.channels": 1,
            "data.image_size": 32,
            "partition.kind": "iid",
            "train.epochs": 1,
            "method.extractor_epochs": 1,
            "models.pool": ["cnn5"],
            "runtime.fleet": "serial",
            "runtime.report": False,
        },
    )
    personal = Federation(config, out=tmp_path / "run").run().personal()
    assert personal.shape == (1, 32, 32)
    export_model(personal, tmp_path / "model")
    picture = turned(tmp_path / "model" / "x.png")
    code = "from model import predict; print(repr(predict('x.png')[0][1]))"
    (found,) = personal.predict([picture])
    assert float(elsewhere(code, tmp_path / "model")) == found.probability


def test_it_is_checked_and_written_down(tmp_path: Path) -> None:
    medmnist(tmp_path / "x.npz")
    (tmp_path / "ada.toml").write_text(
        'name = "ada"\nmodel = "cnn5"\ndata = "npz:x.npz"\nclasses = ["normal", "sick"]\n'
        '[labels]\nnormal = "well"\nsick = "ill"\n'
    )
    (tmp_path / "terms.toml").write_text('[federation]\nclasses = ["ill", "well"]\nchannels = 1\n')
    terms = str(tmp_path / "terms.toml")
    done = command("check", str(tmp_path / "ada.toml"), "--federation", terms)
    assert "ada can take part" in done.stdout, done.stderr
    config = configure(tmp_path / "terms.toml", participants=[tmp_path / "ada.toml"])
    (tmp_path / "again.toml").write_text(config.to_toml())
    again = configure(tmp_path / "again.toml")
    assert again.participants == config.participants
    assert again.federation_digest() == config.federation_digest()


def test_channels_are_one_or_three() -> None:
    with pytest.raises(ConfigError, match=r"data\.channels = 2"):
        configure(settings={"data.channels": 2})
